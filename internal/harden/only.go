package harden

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// common are the system calls of pipes and of the Go runtime. Any that is not
// listed fails with EPERM, so that one the runtime can do without does not kill it.
var common = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FCNTL,
	// Memory.
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
	// Threads, signals, clocks and polling of the runtime. The arguments of
	// clone are checked below.
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_TGKILL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_SET_ROBUST_LIST,
	unix.SYS_RSEQ, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM,
	unix.SYS_RESTART_SYSCALL,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// Only leaves to all threads of this process the system calls of pipes and of the Go runtime, and those of calls, with
// no_new_privs. It is for workers that read what is hostile and do one thing.
func Only(calls []uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return sys.InstallSeccomp(only(calls), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// only is the program: another architecture or ABI is killed, clone makes
// threads only, clone3 (whose flags no filter can see) is missing, the listed
// calls pass, and the rest is refused.
func only(calls []uint32) []byte {
	prog := append(begin(), []unix.SockFilter{
		{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		{Code: ret, K: enosys},
		{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: offArg0},
		{Code: set, K: unix.CLONE_THREAD, Jf: 1},
		{Code: ret, K: allow},
		{Code: ret, K: eperm},
	}...)
	prog = append(prog, each(slices.Concat(common, calls), allow)...)
	return encode(append(prog, unix.SockFilter{Code: ret, K: eperm}))
}
