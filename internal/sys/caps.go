package sys

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KeepCapabilities gives up all capabilities of every thread but those named, which become
// effective: capset(2). It fails with EPERM when one of them is not permitted, and with
// ENOTSUP in a binary with cgo, whose threads Go does not know. The bounding set stays: it
// counts at execve(2) only.
func KeepCapabilities(caps ...uint) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has 64 bits in two
	for _, c := range caps {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	// Capabilities are a thread's own, so each must make the call. EINTR cannot happen.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)),
		uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("capset, to keep %v alone: %w", caps, errno)
	}
	return nil
}
