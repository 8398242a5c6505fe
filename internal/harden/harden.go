// Package harden takes from hutch's own processes what none of them needs, so that whoever
// takes one over has less of the kernel to attack and nobody else's memory to read.
//
// hutch-launch has no filter: sandboxes would inherit it, and the kernel prefers its errno
// to asking PID 1's listener, which tells of refused calls.
package harden

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// refused are calls that neither hutchd, its workers nor the monitor makes. A list of what
// they do make would be that of a whole Go program with image stores, TLS and netlink, for ever
// incomplete; unpacking workers, which read what is hostile, have such a list (images/unpack).
var refused = []uint32{
	// Memory and files of other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD,
	// The kernel itself, and the machine's state.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME,
	// Files without a path, past every mount.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	// Where the kernel's bugs have been.
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_VMSPLICE,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
}

// Process makes this process and all that it starts fail with EPERM where they make a refused
// call, and with no_new_privs. A foreign architecture's call kills.
func Process() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The filter's synchronisation gives it to the other threads as well.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return sys.InstallSeccomp(program(), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// program is the filter.
func program() []byte {
	prog := append(begin(), each(slices.Concat(refused, refusedHere), eperm)...)
	return encode(append(prog, unix.SockFilter{Code: ret, K: allow}))
}
