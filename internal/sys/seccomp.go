package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SeccompInsnSize is the size in bytes of one struct sock_filter
// (linux/filter.h: u16 code, u8 jt, u8 jf, u32 k; native byte order).
const SeccompInsnSize = 8

// SeccompMaxInsns is BPF_MAXINSNS: the kernel refuses a longer program with
// EINVAL (linux/bpf_common.h; kernel/seccomp.c, seccomp_prepare_filter).
const SeccompMaxInsns = 4096

// seccompFlags are the flags InstallSeccomp passes on. NEW_LISTENER and
// TSYNC_ESRCH are missing on purpose: both change what the return value means.
const seccompFlags = unix.SECCOMP_FILTER_FLAG_TSYNC |
	unix.SECCOMP_FILTER_FLAG_LOG |
	unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW

// sockFprog is struct sock_fprog (linux/filter.h). The kernel copies the
// instructions with copy_from_user, so they need no alignment.
type sockFprog struct {
	len    uint16 // instructions
	filter *byte  // array of struct sock_filter
}

// InstallSeccomp adds prog, an array of struct sock_filter in native byte
// order, to the seccomp filters of the calling thread, by seccomp(2)
// SECCOMP_SET_MODE_FILTER. Filters stack and can never be removed; the kernel
// copies prog, so the caller may reuse it.
//
// The caller must have set no_new_privs on this thread (or hold CAP_SYS_ADMIN
// in its user namespace), else the kernel answers EACCES. flags is a
// combination of SECCOMP_FILTER_FLAG_TSYNC, _LOG and _SPEC_ALLOW. With TSYNC
// every thread of the process gets the filter and no_new_privs, or none does;
// it is what a Go program needs, because the runtime moves goroutines between
// threads. Without TSYNC the calling goroutine must be locked to its thread.
//
// With TSYNC the kernel reports a thread whose filters diverge from the
// caller's as a positive result, its thread id, and changes nothing: that is an
// error here. EINTR cannot happen: the call waits only for a lock that nothing
// but a fatal signal interrupts.
func InstallSeccomp(prog []byte, flags uint) error {
	if flags&^seccompFlags != 0 {
		return fmt.Errorf("install seccomp filter: unsupported flags %#x: %w", flags&^seccompFlags, unix.EINVAL)
	}
	n := len(prog) / SeccompInsnSize
	if n == 0 || n > SeccompMaxInsns || len(prog)%SeccompInsnSize != 0 {
		return fmt.Errorf("install seccomp filter: %d bytes are not 1 to %d instructions of %d bytes: %w",
			len(prog), SeccompMaxInsns, SeccompInsnSize, unix.EINVAL)
	}
	fprog := sockFprog{len: uint16(n), filter: &prog[0]}
	// Both pointers stay reachable: fprog is converted in the call itself, and it
	// holds prog's array.
	ret, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		uintptr(flags), uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("install seccomp filter of %d instructions (flags %#x): %w", n, flags, errno)
	}
	if ret != 0 {
		return fmt.Errorf("install seccomp filter of %d instructions (flags %#x): thread %d has filters of its own and cannot be synchronised: %w",
			n, flags, ret, unix.ESRCH)
	}
	return nil
}
