package harden

import (
	"bytes"
	"encoding/binary"
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
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_SET_ROBUST_LIST,
	unix.SYS_RSEQ, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM, unix.SYS_RESTART_SYSCALL,
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
	const (
		// Offsets in struct seccomp_data (linux/seccomp.h) on little-endian machines.
		offNr, offArch, offArg0 = 0, 4, 16
		// x32Bit marks calls of the x32 ABI, which have the same audit architecture.
		x32Bit = 0x40000000
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atl    = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		set    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K
		errno  = unix.SECCOMP_RET_ERRNO
	)
	prog := []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: offNr},
		{Code: atl, K: x32Bit, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		{Code: ret, K: errno | uint32(unix.ENOSYS)},
		{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: offArg0},
		{Code: set, K: unix.CLONE_THREAD, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: errno | uint32(unix.EPERM)},
	}
	for _, nr := range slices.Concat(common, calls) {
		prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	prog = append(prog, unix.SockFilter{Code: ret, K: errno | uint32(unix.EPERM)})
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, prog) // a Buffer takes everything
	return b.Bytes()
}
