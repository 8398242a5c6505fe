package unpack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// confine makes the folder dir the root of everything this process can see and
// takes away the system calls it does not need: calls and those of the Go runtime stay.
// attr are attributes that its mount gets beside the usual ones. The process is alone in new
// namespaces of every kind; it keeps the capabilities of its user namespace,
// which reach only files of the mapped ids, and of those only what is below
// dir. The caller owns the folder it returns.
//
// Of the daemon's user it has the uid and nothing else: it cannot name the
// daemon's processes (pid namespace), trace them (its user namespace is a
// descendant), open its files (root folder) or talk to it but by the two pipes.
func confine(dir string, attr uint64, calls []uint32) (*os.File, error) {
	steps := []struct {
		what string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		// pivot_root(2) wants a mount as the new root.
		{"bind the folder", func() error { return unix.Mount(dir, dir, "", unix.MS_BIND, "") }},
		{"restrict its mount", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{
				Attr_set: attr | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
			})
		}},
		{"enter it", func() error { return unix.Chdir(dir) }},
		// The old root is stacked over the new one and then leaves with all
		// that is below it (pivot_root(2), "new_root and put_old may be the same").
		{"pivot", func() error { return unix.PivotRoot(".", ".") }},
		{"leave the host's files", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"enter the root", func() error { return unix.Chdir("/") }},
		{"forbid dumps", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return nil, fmt.Errorf("confine the worker to %s: %s: %w", dir, s.what, err)
		}
	}
	root, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	if err := installFilter(calls); err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// unpacking and packing are the system calls of the two that common does not have;
// decompressing has no more.
var (
	unpacking = append(slices.Clone(files),
		unix.SYS_FTRUNCATE, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_UNLINKAT,
		unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_UTIMENSAT, unix.SYS_FSETXATTR,
		unix.SYS_GETEUID, unix.SYS_GETEGID, // whose its files are without a chown
	)
	packing = append(slices.Clone(files), unix.SYS_PREAD64)
)

// files are the system calls of reading files, by fds and names below them.
var files = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_LSEEK,
	unix.SYS_FSTAT, sysFstatat, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR,
}

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

// Offsets in struct seccomp_data (linux/seccomp.h) on little-endian machines.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

// x32Bit marks calls of the x32 ABI, which have the same audit architecture.
const x32Bit = 0x40000000

// installFilter applies the list to all threads, and no_new_privs with it.
func installFilter(calls []uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return sys.InstallSeccomp(filter(calls), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// filter is the program: another architecture or ABI is killed, clone makes
// threads only, clone3 (whose flags no filter can see) is missing, the listed
// calls pass, and the rest is refused.
func filter(calls []uint32) []byte {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atl   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		set   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		errno = unix.SECCOMP_RET_ERRNO
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
