package guestapi

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn carries packets between a Client and PID 1, whole and in order. Receive is called by one goroutine at a time,
// and so is Send.
type Conn interface {
	// Receive waits for the next packet and hands it to take, which must not keep it. An error, which is not take's, is
	// the end of the channel.
	Receive(take func(packet []byte)) error
	// Send hands over a packet with files, which stay the caller's, or fails with os.ErrDeadlineExceeded when it is not
	// taken until then.
	Send(until time.Time, packet []byte, files []*os.File) error
	// Close makes a Receive that waits fail.
	Close() error
}

// socket is a Conn over a SOCK_SEQPACKET socket.
type socket struct{ f *os.File }

// NewSocket is the Conn of hutchd's end of the socketpair, which it owns.
func NewSocket(conn *os.File) (Conn, error) {
	own, err := pollable(conn)
	if err != nil {
		return nil, fmt.Errorf("guest channel: %w", err)
	}
	return &socket{own}, nil
}

// pollable returns conn's socket as a file that the runtime's poller serves, so
// that reads do not take a thread each and deadlines work. It closes conn.
func pollable(conn *os.File) (*os.File, error) {
	defer conn.Close()
	fd, err := unix.FcntlInt(conn.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "guest channel"), nil
}

// Close closes the socket.
func (s *socket) Close() error { return s.f.Close() }

// buffers has room for packets, shared by all sockets: an idle sandbox must not cost
// hutchd MaxPacket bytes.
var buffers = sync.Pool{New: func() any { return new([MaxPacket + 1]byte) }}

// Receive reads without room for control messages.
func (s *socket) Receive(take func(packet []byte)) error {
	rc, err := s.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	var (
		buf  *[MaxPacket + 1]byte
		n    int
		rerr error
	)
	err = rc.Read(func(fd uintptr) bool {
		// For the try only: whoever has to wait gives it back.
		buf = buffers.Get().(*[MaxPacket + 1]byte)
		// read(2) has no room for control messages, so fds that the sandbox attaches
		// are closed by the kernel (net/core/scm.c, scm_detach_fds is never reached).
		for {
			n, rerr = unix.Read(int(fd), buf[:])
			if rerr != unix.EINTR {
				break
			}
		}
		if rerr == unix.EAGAIN {
			buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if buf != nil {
		defer buffers.Put(buf)
	}
	switch {
	case err != nil: // closed meanwhile
		return fmt.Errorf("receive: %w", err)
	case rerr != nil:
		return fmt.Errorf("receive: %w", rerr)
	case n == 0:
		return fmt.Errorf("receive: %w", io.EOF)
	}
	take(buf[:n])
	return nil
}

// Send writes one packet.
func (s *socket) Send(until time.Time, packet []byte, files []*os.File) error {
	if err := s.f.SetWriteDeadline(until); err != nil {
		return err
	}
	raw := make([]int, 0, len(files))
	for _, f := range files {
		raw = append(raw, int(f.Fd()))
	}
	var oob []byte
	if len(raw) > 0 {
		oob = unix.UnixRights(raw...)
	}
	rc, err := s.f.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		werr = unix.Sendmsg(int(fd), packet, oob, nil, unix.MSG_NOSIGNAL)
		return werr != unix.EAGAIN && werr != unix.EINTR
	})
	if err != nil {
		return err
	}
	return werr
}
