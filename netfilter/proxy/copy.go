package proxy

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copyDown starts to copy what the server sends, beginning with head, which the flow has
// read already.
func (f *flow) copyDown(head []byte) {
	f.down, f.renewable = make(chan struct{}), true
	go func() {
		defer close(f.down)
		if len(head) > 0 {
			f.counts.down.Add(uint64(len(head)))
			if _, f.broken = f.client.Write(head); f.broken != nil {
				f.abort()
				return
			}
		}
		f.broken = f.p.buffers.copy(renewable{f.client, f}, f.server, &f.counts.down, unlimited)
		if f.broken != nil && !f.renewing.Load() { // renew waits, and sees it
			f.abort()
		}
	}()
}

// renewable is a client that is not told about the end of a server which another one comes after.
type renewable struct {
	*net.TCPConn
	f *flow
}

// CloseWrite passes the end of the server on.
func (c renewable) CloseWrite() error {
	if c.f.renewing.Load() {
		return nil
	}
	return c.TCPConn.CloseWrite()
}

// copyDownEarly starts to copy as soon as the server sends something. The returned function
// takes that back if it has sent nothing yet: it was not for the server to speak first.
func (f *flow) copyDownEarly() (quiet func()) {
	done := make(chan struct{})
	f.down = done
	var mu sync.Mutex
	var begun, stopped bool
	go func() {
		defer close(done)
		err := waitReadable(f.server)
		mu.Lock()
		begun = !stopped
		mu.Unlock()
		if !begun {
			return
		}
		if err != nil || f.p.buffers.copy(f.client, f.server, &f.counts.down, unlimited) != nil {
			f.abort()
		}
	}()
	return func() {
		mu.Lock()
		stopped = !begun
		mu.Unlock()
		if !stopped {
			return
		}
		_ = f.server.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = f.server.SetReadDeadline(noDeadline)
		f.down = nil
	}
}

// waitReadable waits until conn can be read, and reads nothing.
func waitReadable(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
}

// copyUp passes on what the window holds and then all that the client sends.
func (f *flow) copyUp(in *window) error {
	_ = f.client.SetReadDeadline(noDeadline)
	if in.len() > 0 {
		f.counts.up.Add(uint64(in.len()))
		if _, err := f.server.Write(in.bytes()); err != nil {
			return err
		}
		in.release()
	}
	return f.p.buffers.copy(f.server, f.client, &f.counts.up, unlimited)
}

const (
	// bulk is what a read brings of a stream that is worth a pipe. It is not a full buffer:
	// loopback delivers 93 KiB at a time, which is one and a half.
	bulk = 16 << 10
	// bulkAfter is how many such reads in a row make a stream one, and bulkUntil how many
	// smaller ones end that.
	bulkAfter = 4
	bulkUntil = 8
)

// duplex is a connection of TCP or of the Unix domain.
type duplex interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// unlimited is more than any stream carries.
const unlimited = math.MaxUint64

// copy copies left bytes from src to dst and counts them; unlimited: until the end, which
// it passes on.
//
// It is not io.Copy: that holds a pipe for as long as the connection lives, which is six
// fds instead of two, and pages of which a user has 16384 for all of their processes;
// once these are gone, every pipe of the daemon has two pages, and splicing costs four
// times as much. Here buffers and pipes are taken when there is something to read, and
// only streams that carry much get a pipe, of which there are few.
func (b *buffers) copy(dst, src duplex, count *atomic.Uint64, left uint64) error {
	toEnd := left == unlimited
	r, err := newReceiver(src, b.take, b.put)
	if err != nil {
		return err
	}
	for full := 0; left > 0; {
		if full >= bulkAfter {
			s, err := newSplicer(dst, src)
			if err != nil {
				return err
			}
			full = 0
			err = s.run(count, &left)
			if errors.Is(err, io.EOF) && toEnd {
				return dst.CloseWrite()
			} else if err != nil && !errors.Is(err, errNoPipe) {
				return cut(err)
			}
			continue
		}
		r.most = left
		buf, n, err := r.receive()
		if errors.Is(err, io.EOF) && toEnd {
			return dst.CloseWrite()
		}
		if err != nil {
			return cut(err)
		}
		if full++; n < bulk {
			full = 0
		}
		count.Add(uint64(n))
		left -= uint64(n)
		_, err = dst.Write(buf[:n])
		b.put(buf)
		if err != nil {
			return err
		}
	}
	return nil
}

// splicer copies a stream that carries much, without its bytes ever being in our memory.
type splicer struct {
	dst, src  rawConn
	pipe      *pipe
	most      uint64 // what may be moved at a time
	in, left  int
	err       error
	fillReady func(uintptr) bool
	restReady func(uintptr) bool
}

type rawConn interface {
	Read(func(fd uintptr) bool) error
	Write(func(fd uintptr) bool) error
}

func newSplicer(dst, src duplex) (*splicer, error) {
	d, err := dst.SyscallConn()
	if err != nil {
		return nil, err
	}
	s, err := src.SyscallConn()
	if err != nil {
		return nil, err
	}
	sp := &splicer{dst: d, src: s}
	sp.fillReady, sp.restReady = sp.fill, sp.drain
	return sp, nil
}

// run copies at most limit bytes, which it counts down: until the end (io.EOF), until the
// stream carries little (nil), or until other streams have all pipes (errNoPipe). It holds
// a pipe only while there is something in it.
func (s *splicer) run(count *atomic.Uint64, limit *uint64) error {
	wantPipes()
	defer enoughPipes()
	for small := 0; small < bulkUntil && *limit > 0; {
		s.most, s.in, s.err = *limit, 0, nil
		if err := s.src.Read(s.fillReady); err != nil {
			return err
		}
		if s.err != nil {
			return s.err
		}
		count.Add(uint64(s.in))
		*limit -= uint64(s.in)
		s.left, s.err = s.in, nil
		if err := s.dst.Write(s.restReady); err != nil || s.err != nil {
			s.pipe.discard() // with what is left in it
			return errors.Join(err, s.err)
		}
		s.pipe.release()
		if small++; s.in >= bulk {
			small = 0
		}
	}
	return nil
}

func (s *splicer) fill(fd uintptr) bool {
	if s.pipe = takePipe(); s.pipe == nil {
		s.err = errNoPipe
		return true
	}
	n, err := splice(int(fd), s.pipe.w, int(min(uint64(s.pipe.size), s.most)))
	switch {
	case errors.Is(err, unix.EAGAIN):
		s.pipe.release()
		return false
	case err != nil:
		s.pipe.release()
		s.err = err
	case n == 0:
		s.pipe.release()
		s.err = io.EOF
	}
	s.in = n
	return true
}

func (s *splicer) drain(fd uintptr) bool {
	for s.left > 0 {
		n, err := splice(s.pipe.r, int(fd), s.left)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if err != nil {
			s.err = err
			return true
		}
		s.left -= n
	}
	return true
}

func splice(from, to, n int) (int, error) {
	return ignoringEINTR(func() (int, error) {
		n, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		return int(n), err
	})
}
