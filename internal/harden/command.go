package harden

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// readers are calls that no command makes which only reads, beside refused: those that Landlock does not decide about.
var readers = []uint32{
	// Modes, owners, times and attributes of files, which Landlock leaves alone.
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, sysFchmodat2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_FREMOVEXATTR,
	sysSetxattrat, sysRemovexattrat, sysFileSetattr,
	// Programs that no file system has, so that Landlock lets them be executed.
	unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_EXECVEAT,
	// Sockets: services of this machine, hutch's own among them, and the network.
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN,
	// What is shared with other processes of the user's by a number.
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV,
	unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER,
	unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM,
	unix.SYS_PIDFD_OPEN,
	// Namespaces and mounts.
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_BPF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, sysOpenTreeAttr,
}

// Calls that golang.org/x/sys does not name; they have one number everywhere (arch/x86/entry/syscalls,
// scripts/syscall.tbl).
const (
	sysFchmodat2     = 452
	sysSetxattrat    = 463
	sysRemovexattrat = 466
	sysOpenTreeAttr  = 467
	sysFileSetattr   = 469
)

// signals are calls that signal other processes. Of tgkill those signals are left that programs and their runtimes send
// themselves.
var signals = []uint32{unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_SEND_SIGNAL}

// asking are the requests of ioctl(2) that such a command makes: about terminals, descriptors and files. Others are
// unknown to it (ENOTTY): they change files past Landlock (FS_IOC_SETFLAGS), or write what a terminal's reader takes
// for its user's (TIOCSTI, TIOCLINUX).
var asking = []uint32{
	unix.TCGETS, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TCGETS2, unix.TCSETS2, unix.TCSETSW2, unix.TCSETSF2,
	unix.TCGETA,
	unix.TCSBRK, unix.TCXONC, unix.TCFLSH, unix.TIOCGWINSZ, unix.TIOCGPGRP, unix.TIOCSPGRP, unix.TIOCGSID,
	unix.TIOCOUTQ, unix.TIOCINQ, unix.TIOCGETD,
	fionbio, fioclex, fionclex, unix.FS_IOC_GETFLAGS, fsIocFiemap, figetbsz,
}

const (
	fionbio           = 0x5421
	fioclex, fionclex = 0x5451, 0x5450
	figetbsz          = 2
	fsIocFiemap       = 0xc020660b
)

// owning are the commands of fcntl(2) by which the kernel signals whom the caller names, or tells of others' use of a
// file.
var owning = []uint32{unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_SETLEASE, unix.F_NOTIFY}

// ownSignals are what tgkill is left for: abort(3), and what threads of libc and of Go send each other.
var ownSignals = []uint32{uint32(unix.SIGABRT), uint32(unix.SIGURG), 32, 33, 34}

// Command takes from the calling thread, which is locked, and from what it starts, what a command that only reads does
// not do and Landlock does not keep it from. Refused calls fail with EPERM. mute says that it may signal nobody either,
// its children included: for kernels whose Landlock knows no signals (before Linux 6.12). no_new_privs must be set.
func Command(mute bool) error {
	if err := sys.InstallSeccomp(command(mute), 0); err != nil {
		return fmt.Errorf("filter of system calls: %w", err)
	}
	return nil
}

func command(mute bool) []byte {
	const spaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	prog := append(begin(), []unix.SockFilter{
		// No filter sees the flags of clone3: libraries go back to clone.
		{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		{Code: ret, K: enosys},
		{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: offArg0},
		{Code: set, K: spaces, Jf: 1},
		{Code: ret, K: eperm},
		{Code: ret, K: allow},
		// A datagram goes to whom it names, also from a socket of a pair.
		{Code: equal, K: unix.SYS_SOCKETPAIR, Jf: 8},
		{Code: load, K: offArg0},
		{Code: equal, K: unix.AF_UNIX, Jf: 4},
		{Code: load, K: offArg1},
		{Code: and, K: 0xf},
		{Code: equal, K: unix.SOCK_STREAM, Jt: 2},
		{Code: equal, K: unix.SOCK_SEQPACKET, Jt: 1},
		{Code: ret, K: eperm},
		{Code: ret, K: allow},
		// Limits of other processes; 0 is the caller.
		{Code: equal, K: unix.SYS_PRLIMIT64, Jf: 4},
		{Code: load, K: offArg0},
		{Code: equal, K: 0, Jt: 1},
		{Code: ret, K: eperm},
		{Code: ret, K: allow},
	}...)
	// decide compares an argument with a list, for one call: what is in it ends one way, what is not the other.
	decide := func(nr uint32, arg uint32, list []uint32, in, out uint32) {
		prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jf: uint8(2 + 2*len(list))},
			unix.SockFilter{Code: load, K: arg})
		prog = append(prog, each(list, in)...)
		prog = append(prog, unix.SockFilter{Code: ret, K: out})
	}
	decide(unix.SYS_IOCTL, offArg1, asking, allow, enotty)
	decide(unix.SYS_FCNTL, offArg1, owning, eperm, allow)
	if mute {
		decide(unix.SYS_TGKILL, offArg2, ownSignals, allow, eperm)
	}
	lists := [][]uint32{refused, refusedHere, readers, readersHere}
	if mute {
		lists = append(lists, signals)
	}
	prog = append(prog, each(slices.Concat(lists...), eperm)...)
	return encode(append(prog, unix.SockFilter{Code: ret, K: allow}))
}
