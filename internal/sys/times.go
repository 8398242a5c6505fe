package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Futimens sets the times of access and change of the open file fd, without a name that the
// kernel would look at (utimensat(2), "path is NULL"), which x/sys cannot say.
func Futimens(fd int, access, change unix.Timespec) error {
	ts := [2]unix.Timespec{access, change}
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts[0])), 0, 0,
		0); errno != 0 {
		return errno
	}
	return nil
}
