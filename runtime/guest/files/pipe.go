package files

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// buffer is the unit of copying.
	buffer = 256 << 10
	// pipeBuf is what fits into a pipe that is writable (PIPE_BUF, linux/limits.h).
	pipeBuf = 4096
)

// pipe is the pipe that came with a call. Whether it blocks is up to whoever made
// it, who shares the flag: so it is waited for with poll(2), together with the
// call's end, and a blocking one is written in pieces that fit.
type pipe struct {
	c     *call
	piece int
}

func (c *call) pipe() (*pipe, error) {
	flags, err := unix.FcntlInt(uintptr(c.fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	p := &pipe{c: c, piece: pipeBuf}
	if flags&unix.O_NONBLOCK != 0 {
		p.piece = buffer
	}
	return p, nil
}

// wait returns when the pipe is ready or the call is cancelled.
func (p *pipe) wait(events int16) error {
	fds := []unix.PollFd{{Fd: int32(p.c.fd), Events: events}, {Fd: int32(p.c.stop), Events: unix.POLLIN}}
	if err := retry(func() error { _, err := unix.Poll(fds, -1); return err }); err != nil {
		return err
	}
	if fds[1].Revents != 0 {
		return unix.ECANCELED
	}
	return nil
}

func (p *pipe) Read(b []byte) (n int, err error) {
	for {
		if err := p.wait(unix.POLLIN); err != nil {
			return 0, err
		}
		n, err = unix.Read(p.c.fd, b)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR): // somebody else was faster
			continue
		case err != nil:
			return 0, &problem{errnoOf(err), "read the pipe: " + err.Error()}
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (p *pipe) Write(b []byte) (done int, err error) {
	for done < len(b) {
		if err := p.wait(unix.POLLOUT); err != nil {
			return done, err
		}
		n, err := unix.Write(p.c.fd, b[done:min(done+p.piece, len(b))])
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, &problem{errnoOf(err), "write to the pipe: " + err.Error()}
		}
		done += n
	}
	return done, nil
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// file is an open file's fd as a reader and writer.
type file int

func (f file) Read(b []byte) (n int, err error) {
	err = retry(func() error { n, err = unix.Read(int(f), b); return err })
	if err == nil && n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (f file) Write(b []byte) (done int, err error) {
	for done < len(b) {
		var n int
		if err := retry(func() error { n, err = unix.Write(int(f), b[done:]); return err }); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
