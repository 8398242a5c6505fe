package sys

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// numSignals is the kernel's _NSIG on x86_64 and aarch64 (asm/signal.h).
const numSignals = 64

// DefaultSignals sets the disposition of every signal except keep, SIGKILL and
// SIGSTOP to SIG_DFL, behind the Go runtime's back.
//
// It is for PID 1 of a pid namespace, which the kernel protects from the
// signals of its own namespace only while it has no handler for them
// (pid_namespaces(7); kernel/signal.c, sig_task_ignored). Go installs handlers
// for everything, and os/signal.Ignore cannot take them off the synchronous
// signals: a SIGSEGV queued with an invented si_code then looks like a fault of
// the program itself and crashes it. Afterwards a nil dereference ends the
// process instead of panicking; keep must hold SIGURG, by which the runtime
// preempts.
func DefaultSignals(keep ...unix.Signal) error {
	// struct sigaction of the kernel: handler, flags, restorer, mask. All zero is
	// SIG_DFL. The last argument of the call is sizeof(sigset_t).
	var action [4]uint64
	for sig := unix.Signal(1); sig <= numSignals; sig++ {
		if sig == unix.SIGKILL || sig == unix.SIGSTOP || slices.Contains(keep, sig) {
			continue
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
			uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("rt_sigaction of signal %d: %w", sig, errno)
		}
	}
	return nil
}
