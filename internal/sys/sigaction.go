package sys

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// numSignals is the kernel's _NSIG on x86_64 and aarch64 (asm/signal.h).
const numSignals = 64

// Dispositions without a handler (asm-generic/signal-defs.h).
const (
	sigDefault = 0 // SIG_DFL
	sigIgnore  = 1 // SIG_IGN
)

// IgnoreSignals sets the disposition of every signal except keep, SIGKILL and SIGSTOP to
// SIG_IGN, behind the Go runtime's back.
//
// It is for PID 1 of a pid namespace, which the kernel should protect from the signals of
// its own namespace while it has no handler for them (pid_namespaces(7)). SIG_DFL is not
// enough for a process with threads: what is sent while the main thread blocks signals, as
// Go's do in each fork and each start of a thread, counts as wanted (kernel/signal.c,
// sig_ignored), and when another thread does not block it, its default effect, the end of
// the whole process, comes at once (complete_signal). Ignored signals have no effect
// there.
//
// Go installs handlers for everything, and os/signal.Ignore cannot take them off the
// synchronous signals: a SIGSEGV queued with an invented si_code then looks like a fault
// of the program itself and crashes it. Afterwards a nil dereference ends the process
// instead of panicking (the kernel forces that signal); keep must hold SIGURG, by which
// the runtime preempts. Programs that the process executes inherit what is ignored.
func IgnoreSignals(keep ...unix.Signal) error { return setSignals(sigIgnore, keep) }

// DefaultSignals sets the disposition of every signal except SIGKILL and SIGSTOP to
// SIG_DFL, behind the Go runtime's back: for a process that is about to die of one.
func DefaultSignals() error { return setSignals(sigDefault, nil) }

func setSignals(disposition uint64, keep []unix.Signal) error {
	// struct sigaction of the kernel: handler, flags, restorer, mask. The last argument of
	// the call is sizeof(sigset_t).
	action := [4]uint64{disposition}
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
