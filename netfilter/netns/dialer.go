package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Dialer connects to servers in a namespace, also to those on its own loopback. Sockets are made on a thread that has
// entered the namespace, and cannot leave it again; connecting and everything else happens on any thread. The thread
// is there while connections are made, and some time longer.
type Dialer struct {
	ns *os.File

	mu     sync.Mutex
	maker  *maker // nil while nobody connects
	closed bool
	wg     sync.WaitGroup
}

// maker is a thread in the namespace. It has sockets ready, so that who takes one neither waits for it nor wakes it
// each time: that takes as long as everything else about a connection.
type maker struct {
	v4, v6 chan made
	more   chan struct{} // few of v4 are left
	stop   chan struct{}
	gone   chan struct{}
}

type made struct {
	fd  int
	err error
}

const (
	// makerIdle is how long a thread waits for the next connection: to enter a namespace takes half a millisecond.
	makerIdle = 10 * time.Second
	// dialTime bounds what a server may take whose queue is full; the kernel answers for all others at once.
	dialTime = 10 * time.Second
	// stock is how many sockets of IPv4 are ready while connections are made, fewStock when the thread makes more.
	stock    = 16
	fewStock = 4
)

// NewDialer connects in the namespace ns, of which it takes a duplicate: a file of /proc/PID/ns/net.
func NewDialer(ns *os.File) (*Dialer, error) {
	own, err := dup(ns)
	if err != nil {
		return nil, fmt.Errorf("duplicate a network namespace: %w", err)
	}
	return &Dialer{ns: own}, nil
}

// Close ends the thread. Connections stay.
func (d *Dialer) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	if d.maker != nil {
		close(d.maker.stop)
	}
	d.mu.Unlock()
	d.wg.Wait()
	return d.ns.Close()
}

// Later makes what is left of a connection; it must be called, and may wait.
type Later func(context.Context) (*net.TCPConn, error)

// Dial connects to a port of the namespace's loopback: 127.0.0.1, or where nobody listens there ::1. It does not wait,
// and returns a socket that is the caller's: where none is ready, or the answer is not there yet, which takes a full
// queue or a busy machine, later is not nil. The server may have the connection already, and must not see a second one.
func (d *Dialer) Dial(port uint16) (fd int, _ Later, _ error) {
	fd, err := d.ready()
	if err != nil {
		return -1, nil, err
	}
	if fd < 0 {
		return -1, func(ctx context.Context) (*net.TCPConn, error) { return d.Connect(ctx, port) }, nil
	}
	four, six := loopbacks(port)
	err = connect(fd, four)
	if errors.Is(err, unix.EALREADY) {
		f := os.NewFile(uintptr(fd), "connection")
		return -1, func(ctx context.Context) (*net.TCPConn, error) {
			c, err := connected(f, await(ctx, f))
			return d.orSix(ctx, c, err, six)
		}, nil
	}
	if err == nil {
		return fd, nil, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.ECONNREFUSED) {
		return -1, func(ctx context.Context) (*net.TCPConn, error) { return d.orSix(ctx, nil, err, six) }, nil
	}
	return -1, nil, fmt.Errorf("connect: %w", err)
}

// Connect is Dial that waits.
func (d *Dialer) Connect(ctx context.Context, port uint16) (*net.TCPConn, error) {
	four, six := loopbacks(port)
	return d.wait(ctx, four, six)
}

// loopbacks are the addresses of a port there.
func loopbacks(port uint16) (four, six unix.Sockaddr) {
	return &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}},
		&unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}
}

// orSix is what connecting by IPv4 has come to, or where nobody listens there what it does by IPv6.
func (d *Dialer) orSix(ctx context.Context, c *net.TCPConn, err error, six unix.Sockaddr) (*net.TCPConn, error) {
	if !errors.Is(err, unix.ECONNREFUSED) {
		return c, err
	}
	c, err6 := d.wait(ctx, six, nil)
	if errors.Is(err6, unix.EAFNOSUPPORT) || errors.Is(err6, unix.EADDRNOTAVAIL) { // no IPv6 here
		return nil, err
	}
	return c, err6
}

// wait connects to an address, or where it is refused to the other one, which may be nil.
func (d *Dialer) wait(ctx context.Context, to, other unix.Sockaddr) (*net.TCPConn, error) {
	_, isSix := to.(*unix.SockaddrInet6)
	fd, err := d.socket(isSix)
	if err != nil {
		return nil, fmt.Errorf("socket in a network namespace: %w", err)
	}
	err = connect(fd, to)
	f := os.NewFile(uintptr(fd), "connection")
	if errors.Is(err, unix.EALREADY) {
		err = await(ctx, f)
	}
	c, err := connected(f, err)
	if other != nil {
		return d.orSix(ctx, c, err, other)
	}
	return c, err
}

// connect connects as far as that goes without waiting; EALREADY where it goes on.
func connect(fd int, to unix.Sockaddr) error {
	// Over loopback the answer is there when connect(2) returns, and is told by asking again.
	err := ignoringEINTR(func() error { return unix.Connect(fd, to) })
	if errors.Is(err, unix.EINPROGRESS) {
		err = ignoringEINTR(func() error { return unix.Connect(fd, to) })
	}
	if err != nil && !errors.Is(err, unix.EISCONN) {
		return err
	}
	return notItself(fd, to)
}

// notItself refuses a socket that is connected to itself: it got the very port that it connects to for its own
// (simultaneous open).
func notItself(fd int, to unix.Sockaddr) error {
	if port, err := sys.LocalPort(fd); err != nil || port != portTo(to) {
		return err
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if reflexive(own, to) {
		return unix.ECONNREFUSED
	}
	return nil
}

func portTo(to unix.Sockaddr) uint16 {
	switch to := to.(type) {
	case *unix.SockaddrInet4:
		return uint16(to.Port)
	case *unix.SockaddrInet6:
		return uint16(to.Port)
	}
	return 0
}

func reflexive(own, to unix.Sockaddr) bool {
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		to, ok := to.(*unix.SockaddrInet4)
		return ok && to.Port == own.Port && to.Addr == own.Addr
	case *unix.SockaddrInet6:
		to, ok := to.(*unix.SockaddrInet6)
		return ok && to.Port == own.Port && to.Addr == own.Addr
	}
	return false
}

// connected makes a connection of a socket, which it closes, and of what connecting has come to.
func connected(f *os.File, err error) (*net.TCPConn, error) {
	defer f.Close()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, unix.EPROTOTYPE
	}
	return conn, nil
}

// await waits for a connection that a server with a full queue, or a busy machine, is late with.
func await(ctx context.Context, f *os.File) error {
	_ = f.SetWriteDeadline(time.Now().Add(dialTime))
	defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })()
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Write(func(fd uintptr) (done bool) {
		if peer, err := unix.Getpeername(int(fd)); err == nil {
			failed = notItself(int(fd), peer)
			return true
		}
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		failed = err
		return err != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return unix.ETIMEDOUT
	}
	return errors.Join(failed, err)
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ready is a socket of IPv4 that a thread in the namespace has made already; -1 where there is none.
func (d *Dialer) ready() (fd int, err error) {
	d.mu.Lock()
	m, closed := d.maker, d.closed
	d.mu.Unlock()
	if closed {
		return -1, net.ErrClosed
	}
	if m == nil {
		return -1, nil
	}
	m.wantMore()
	select {
	case s := <-m.v4:
		if s.err == nil {
			return s.fd, nil
		}
	default:
	}
	return -1, nil
}

// wantMore has the thread make more sockets when few are left.
func (m *maker) wantMore() {
	if len(m.v4) > fewStock {
		return
	}
	select {
	case m.more <- struct{}{}:
	default:
	}
}

// socket is a new TCP socket in the namespace, the caller's; it waits for the thread.
func (d *Dialer) socket(six bool) (int, error) {
	var last error
	for range 2 { // what is ready may be an old failure
		m, err := d.running()
		if err != nil {
			return -1, err
		}
		from := m.v4
		if six {
			from = m.v6
		} else {
			m.wantMore()
		}
		select {
		case s := <-from:
			if s.err == nil {
				return s.fd, nil
			}
			last = s.err
		case <-m.gone:
			last = errors.New("the thread in the namespace has ended")
		}
	}
	return -1, last
}

// running is the maker, which is started where there is none.
func (d *Dialer) running() (*maker, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.maker != nil {
		return d.maker, nil
	}
	m := &maker{v4: make(chan made, stock), v6: make(chan made), more: make(chan struct{}, 1),
		stop: make(chan struct{}), gone: make(chan struct{})}
	entered := make(chan error, 1)
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		_ = onOwnThread(func() error { // which ends with it
			err := withFD(d.ns, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
			entered <- err
			if err == nil {
				d.make(m)
			}
			return err
		})
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	d.maker = m
	return m, nil
}

// make makes sockets until nobody wants one any more.
func (d *Dialer) make(m *maker) {
	six := newSocket(unix.AF_INET6)
	idle := time.NewTimer(makerIdle)
	defer idle.Stop()
	for {
		for len(m.v4) < stock {
			s := newSocket(unix.AF_INET)
			m.v4 <- s // nobody else sends
			if s.err != nil {
				break
			}
		}
		select {
		case <-m.more:
		case m.v6 <- six:
			six = newSocket(unix.AF_INET6)
		case <-idle.C:
			d.mu.Lock()
			d.maker = nil
			d.mu.Unlock()
			m.end(six)
			return
		case <-m.stop:
			m.end(six)
			return
		}
		idle.Reset(makerIdle)
	}
}

// end closes what nobody has taken. Who waits tries the next maker; who comes later finds what is left, or this closed.
func (m *maker) end(six made) {
	close(m.gone)
	six.drop()
	for {
		select {
		case s := <-m.v4:
			s.drop()
		default:
			return
		}
	}
}

func newSocket(family int) made {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // as package net has it
	}
	return made{fd, err}
}

func (s made) drop() {
	if s.err == nil {
		_ = unix.Close(s.fd)
	}
}
