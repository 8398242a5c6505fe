package sys

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SeccompActionAvailable reports whether filters may return action, one of
// unix.SECCOMP_RET_*, by seccomp(2) SECCOMP_GET_ACTION_AVAIL (Linux 4.14). A
// kernel without it, or without seccomp, gives an error.
func SeccompActionAvailable(action uint32) (bool, error) {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	switch {
	case errno == 0:
		return true, nil
	case errors.Is(errno, unix.EOPNOTSUPP):
		return false, nil
	}
	return false, fmt.Errorf("seccomp(SECCOMP_GET_ACTION_AVAIL, %#x): %w", action, errno)
}

// Dumpable says whether a process's memory may go into core files (PR_SET_DUMPABLE), by
// PIDFD_GET_INFO, since Linux 6.16; an older kernel gives an error that is errors.ErrUnsupported.
func Dumpable(pid int) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, fmt.Errorf("pidfd_open(%d): %w", pid, err)
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_COREDUMP}
	if err := unix.IoctlPidfdInfo(fd, &info); err != nil {
		if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
			err = errors.ErrUnsupported
		}
		return false, fmt.Errorf("ioctl(PIDFD_GET_INFO) of process %d: %w", pid, err)
	}
	if info.Mask&unix.PIDFD_INFO_COREDUMP == 0 {
		return false, fmt.Errorf("ioctl(PIDFD_GET_INFO) of process %d: no PIDFD_INFO_COREDUMP: %w", pid,
			errors.ErrUnsupported)
	}
	return info.Coredump_mask&unix.PIDFD_COREDUMP_SKIP == 0, nil
}

// bpfProgLoadAttr is the part of union bpf_attr that BPF_PROG_LOAD reads
// (linux/bpf.h); the kernel takes what lies beyond the given size as zero.
type bpfProgLoadAttr struct {
	progType uint32
	insnCnt  uint32
	insns    uint64
	license  uint64
	logLevel uint32
	logSize  uint32
	logBuf   uint64
	kernVers uint32
	flags    uint32
	name     [unix.BPF_OBJ_NAME_LEN]byte
	ifindex  uint32
	attach   uint32
}

// TryBPF loads and discards the smallest cgroup egress program, "allow
// everything", by bpf(2) BPF_PROG_LOAD. It needs CAP_BPF and CAP_NET_ADMIN in the
// initial user namespace, else the kernel answers EPERM.
func TryBPF() error {
	program := [...]uint64{
		0x1_0000_00b7, // r0 = 1
		0x95,          // exit
	}
	license := [...]byte{'A', 'p', 'a', 'c', 'h', 'e', 0}
	attr := bpfProgLoadAttr{
		progType: unix.BPF_PROG_TYPE_CGROUP_SKB,
		insnCnt:  uint32(len(program)),
		insns:    uint64(uintptr(unsafe.Pointer(&program[0]))),
		license:  uint64(uintptr(unsafe.Pointer(&license[0]))),
		attach:   unix.BPF_CGROUP_INET_EGRESS,
	}
	var pin runtime.Pinner
	pin.Pin(&program)
	pin.Pin(&license)
	defer pin.Unpin()
	var fd uintptr
	errno := unix.EAGAIN
	// The verifier gives up with EAGAIN when a signal is pending (do_check in kernel/bpf/verifier.c), and the runtime
	// sends signals to threads of its own at any time.
	for try := 0; errno == unix.EAGAIN && try < 30; try++ {
		fd, _, errno = unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)),
			unsafe.Sizeof(attr))
	}
	if errno != 0 {
		return fmt.Errorf("bpf(BPF_PROG_LOAD, cgroup_skb): %w", errno)
	}
	return unix.Close(int(fd))
}
