package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Refuser is where programs in a namespace with nothing but loopback look for a resolver: an address that lo has by
// itself, so that there need be no route, and none that a server would take for its own.
var Refuser = netip.MustParseAddr("127.18.0.1")

// plainBytes bounds what waits in the socket for questions.
const plainBytes = 64 << 10

// Plain is a namespace with loopback and nothing else, the policy mode none. A socket in it takes what programs ask of
// a resolver, so that somebody hears of it: nothing of that leaves the namespace.
type Plain struct {
	File  *os.File // the namespace itself
	asked *os.File // the socket
}

// NewPlain makes one. It lives as long as File or a process in it.
//
// Like each namespace of this package it belongs to the caller's user namespace. A
// sandbox joins it from a nested one, so that even its root may not touch links,
// routes, nftables or sysctls.
func NewPlain() (*Plain, error) {
	p := &Plain{}
	err := onOwnThread(func() (err error) {
		if p.File, err = enterNew(); err != nil {
			return err
		}
		if err = justLoopback.Send(); err != nil {
			return err
		}
		p.asked, err = askable()
		return err
	})
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return p, nil
}

// AdoptPlain makes the socket of a namespace whose hutchd is gone anew. It owns the file.
func AdoptPlain(ns *os.File) (*Plain, error) {
	p := &Plain{File: ns}
	err := onOwnThread(func() error {
		err := withFD(ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
		if err == nil {
			p.asked, err = askable()
		}
		return err
	})
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("listen in a network namespace: %w", err)
	}
	return p, nil
}

// Close gives it back, and ends a Wait.
func (p *Plain) Close() error {
	var errs []error
	for _, f := range []*os.File{p.asked, p.File} {
		if f == nil {
			continue
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) { // Wait has handed it over
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// askable makes the socket, on a thread in the namespace. It shares its port (SO_REUSEADDR) with nobody, as the
// resolvers of other modes: any user inside could bind the same address then, and get the questions of all others.
func askable() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for questions: %w", err)
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, plainBytes); err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: dnsPort, Addr: Refuser.As4()})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("socket for questions at %s: %w", Refuser, err)
	}
	return os.NewFile(uintptr(fd), "questions"), nil
}

// Wait waits for the first question, for which it holds no memory, and returns the socket then; net.ErrClosed when p is
// closed before.
func (p *Plain) Wait() (*net.UDPConn, error) {
	raw, err := p.asked.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err != nil {
		return nil, net.ErrClosed
	}
	c, err := asUDP(p.asked)
	if err == nil {
		_ = p.asked.Close() // c has another
	}
	return c, err
}
