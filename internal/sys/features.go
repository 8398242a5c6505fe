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
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return fmt.Errorf("bpf(BPF_PROG_LOAD, cgroup_skb): %w", errno)
	}
	return unix.Close(int(fd))
}
