package sys

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Marked makes calls, each with this mark in the upper half of an argument, where the kernel takes an int and does not
// look. A seccomp filter sees it (cbpf.AskingAlso): in the third argument, but for openat2 and those about groups in
// the first and symlinkat in the second.
type Marked uint32

func (m Marked) int(v int) uintptr { return uintptr(uint64(uint32(v)) | uint64(m)<<32) }

// again makes a call until no signal interrupts it.
func again(nr, a, b, c, d, e uintptr) (int, error) {
	for {
		r, _, errno := unix.Syscall6(nr, a, b, c, d, e, 0)
		if errno == 0 {
			return int(r), nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return -1, errno
		}
	}
}

// Openat2 is openat2(2).
func (m Marked) Openat2(dir int, path string, how *unix.OpenHow) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	return again(unix.SYS_OPENAT2, m.int(dir), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(how)),
		unsafe.Sizeof(*how), 0)
}

// Chown sets the owner of what fd is, which may be O_PATH; -1 leaves an id as it is.
func (m Marked) Chown(fd int, uid, gid uint32) error {
	p, err := unix.BytePtrFromString("")
	if err == nil {
		_, err = again(unix.SYS_FCHOWNAT, uintptr(fd), uintptr(unsafe.Pointer(p)), m.int(int(uid)), uintptr(gid),
			unix.AT_EMPTY_PATH)
	}
	return err
}

// Prlimit is prlimit(2), with the mark in the second argument. Either limit may be nil.
func (m Marked) Prlimit(pid, resource int, to, old *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, uintptr(pid), m.int(resource), uintptr(unsafe.Pointer(to)),
		uintptr(unsafe.Pointer(old)), 0, 0)
	return nonZero(errno)
}

// Mkdir is mkdirat(2).
func (m Marked) Mkdir(dir int, name string, mode uint32) error {
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		_, err = again(unix.SYS_MKDIRAT, uintptr(dir), uintptr(unsafe.Pointer(p)), m.int(int(mode)), 0, 0)
	}
	return err
}

// Mknod is mknodat(2).
func (m Marked) Mknod(dir int, name string, mode uint32, dev uint64) error {
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		_, err = again(unix.SYS_MKNODAT, uintptr(dir), uintptr(unsafe.Pointer(p)), m.int(int(mode)), uintptr(dev), 0)
	}
	return err
}

// Symlink is symlinkat(2).
func (m Marked) Symlink(to string, dir int, name string) error {
	t, err := unix.BytePtrFromString(to)
	if err != nil {
		return err
	}
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		_, err = again(unix.SYS_SYMLINKAT, uintptr(unsafe.Pointer(t)), m.int(dir), uintptr(unsafe.Pointer(p)), 0, 0)
	}
	return err
}

// Link is linkat(2).
func (m Marked) Link(oldDir int, old string, dir int, name string, flags int) error {
	return m.two(unix.SYS_LINKAT, oldDir, old, dir, name, flags)
}

// Unlink is unlinkat(2).
func (m Marked) Unlink(dir int, name string, flags int) error {
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		_, err = again(unix.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(p)), m.int(flags), 0, 0)
	}
	return err
}

// Rename is renameat2(2).
func (m Marked) Rename(oldDir int, old string, dir int, name string, flags int) error {
	return m.two(unix.SYS_RENAMEAT2, oldDir, old, dir, name, flags)
}

func (m Marked) two(nr uintptr, oldDir int, old string, dir int, name string, flags int) error {
	o, err := unix.BytePtrFromString(old)
	if err != nil {
		return err
	}
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		_, err = again(nr, uintptr(oldDir), uintptr(unsafe.Pointer(o)), m.int(dir), uintptr(unsafe.Pointer(p)),
			uintptr(flags))
	}
	return err
}

// SeccompWaits reports whether the call is still waiting for its answer. While it is, its thread has not ended, and its
// number is nobody else's.
func SeccompWaits(fd int, id uint64) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_ID_VALID,
		uintptr(unsafe.Pointer(&id)))
	return errno == 0
}

// seccompAddFD is struct seccomp_notif_addfd.
type seccompAddFD struct {
	id         uint64
	flags      uint32
	srcfd      uint32
	newfd      uint32
	newfdFlags uint32
}

// ReturnSeccomp makes a call return value.
func ReturnSeccomp(fd int, id uint64, value int64) error {
	return answerSeccomp(fd, &seccompAnswer{id: id, value: value})
}

// ReturnSeccompFD makes a call return a new descriptor of file, which stays the caller's (Linux 5.9). Where the
// process cannot have it, as one that has no room for more (EMFILE), the call has that error. ENOENT is as of
// RefuseSeccomp. The listener has to be a killable one: in the process of one that is not, a signal between the two
// steps leaves the descriptor behind.
//
// SECCOMP_ADDFD_FLAG_SEND, which is one step, loses the answer when a signal or a freezer interrupts it: the kernel has
// the call marked as answered then, takes the descriptor back, and the call returns 0 (seccomp_notify_addfd in
// kernel/seccomp.c, Linux 6.18).
func ReturnSeccompFD(fd int, id uint64, file int, cloexec bool) error {
	a := seccompAddFD{id: id, srcfd: uint32(file)}
	if cloexec {
		a.newfdFlags = unix.O_CLOEXEC
	}
	for {
		got, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_ADDFD,
			uintptr(unsafe.Pointer(&a)))
		switch {
		case errno == 0:
			return ReturnSeccomp(fd, id, int64(got))
		case errors.Is(errno, unix.ENOENT):
			return errno
		case !errors.Is(errno, unix.EINTR):
			return RefuseSeccomp(fd, id, errno)
		}
	}
}
