package sys

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetThreadFileIDs sets whom the kernel asks about when the calling thread looks at a file, and no other thread: its
// file system ids and groups. The goroutine must be locked to the thread. As setfsuid(2) says, the capabilities that
// are about files leave the effective set with uid 0 and come back with it. Where only some is possible, some is done.
// The calls about groups have m in their first argument.
func (m Marked) SetThreadFileIDs(uid, gid uint32, groups []uint32) error {
	have, err := m.groups()
	if err != nil || !slices.Equal(have, groups) { // where setgroups is denied nobody's differ
		var first unsafe.Pointer
		if len(groups) > 0 {
			first = unsafe.Pointer(&groups[0])
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, m.int(len(groups)), uintptr(first), 0); errno != 0 {
			return fmt.Errorf("setgroups: %w", errno)
		}
	}
	// These two report no errors; asked for nobody's id they change nothing, and say whose it is.
	const ask = ^uintptr(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	nowUID, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ask, 0, 0)
	nowGID, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ask, 0, 0)
	if uint32(nowUID) != uid || uint32(nowGID) != gid {
		return fmt.Errorf("set file system ids %d:%d: they are %d:%d: %w", uid, gid, uint32(nowUID), uint32(nowGID),
			unix.EPERM)
	}
	return nil
}

// groups are those of the calling thread.
func (m Marked) groups() ([]uint32, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_GETGROUPS, m.int(0), 0, 0)
	if errno != 0 || n == 0 {
		return nil, nonZero(errno)
	}
	list := make([]uint32, n)
	n, _, errno = unix.RawSyscall(unix.SYS_GETGROUPS, m.int(len(list)), uintptr(unsafe.Pointer(&list[0])), 0)
	return list[:min(int(n), len(list))], nonZero(errno)
}

func nonZero(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// OpenatMarked is openat(2), close-on-exec, with a mark in the upper half of the flags, which the kernel does not look
// at: it takes an int. A seccomp filter sees it (cbpf.AskingAlso). It makes no file.
func OpenatMarked(dir int, path string, flags int, mark uint32) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	marked := uint64(uint32(flags|unix.O_CLOEXEC)) | uint64(mark)<<32
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(marked),
			0, 0, 0)
		if errno == 0 {
			return int(fd), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return -1, errno
		}
	}
}

// Access is faccessat2(2). unix.Faccessat answers in the kernel's place where that says EPERM.
func Access(dir int, path string, mode uint32, flags int) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall6(unix.SYS_FACCESSAT2, uintptr(dir), uintptr(unsafe.Pointer(p)), uintptr(mode),
		uintptr(flags), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
