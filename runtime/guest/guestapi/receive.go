package guestapi

import (
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// buffers has room for packets, shared by all clients: an idle sandbox must not cost
// hutchd MaxPacket bytes.
var buffers = sync.Pool{New: func() any { return new([MaxPacket + 1]byte) }}

// receive waits for the next packet and parses it. An error that is not ErrProtocol is the
// end of the channel.
func (c *Client) receive() (*Event, error) {
	rc, err := c.conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
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
		return nil, fmt.Errorf("receive: %w", err)
	case rerr != nil:
		return nil, fmt.Errorf("receive: %w", rerr)
	case n == 0:
		return nil, fmt.Errorf("receive: %w", io.EOF)
	}
	ev, err := parseEvent(buf[:n])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return ev, nil
}
