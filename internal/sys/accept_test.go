package sys

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAccept: a connection is accepted once, and a socket's own port is what package net says.
func TestAccept(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		rc, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Control(func(fd uintptr) {
			got, err := Accept(int(fd))
			if err != nil {
				t.Errorf("%s: %v", at, err)
				return
			}
			defer unix.Close(got)
			if port, err := LocalPort(got); err != nil || int(port) != l.Addr().(*net.TCPAddr).Port {
				t.Errorf("%s: port %d, %v", at, port, err)
			}
			if fd, err := Accept(int(fd)); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("%s: a second one: %d, %v", at, fd, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LocalPort(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("%v", err)
	}
}
