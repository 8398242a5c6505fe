package sys

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept accepts a connection of a listener that does not block, as one that does not either (accept4(2)). It does not
// ask who that is, for which package unix makes another system call.
func Accept(listener int) (fd int, err error) {
	n, _, errno := unix.Syscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// LocalPort is the port that a socket of TCP has for its own (getsockname(2)), without the second system call of
// package unix.
func LocalPort(fd int) (uint16, error) {
	var to unix.RawSockaddrAny
	size := uint32(unsafe.Sizeof(to))
	if _, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&to)),
		uintptr(unsafe.Pointer(&size))); errno != 0 {
		return 0, errno
	}
	// sockaddr_in and sockaddr_in6 have it behind the family, in the network's order.
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&to.Addr.Data))[:]), nil
}
