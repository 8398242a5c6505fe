package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	largeBuffer = 64 << 10
	smallBuffer = 4 << 10
	// maxLarge is how many large buffers the flows of a sandbox hold at a time: those
	// whose data the other end does not take, or whose first bytes are still coming.
	// Idle flows hold none.
	maxLarge = 256
)

// The pools hold pointers to arrays: a slice would be allocated to be put back.
var (
	largePool = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
	smallPool = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
)

// buffers hands out buffers to the flows of a sandbox: large ones while it holds few.
type buffers struct{ large atomic.Int64 }

// take returns a buffer of largeBuffer or smallBuffer bytes.
func (b *buffers) take() []byte {
	if buf := b.takeLarge(); buf != nil {
		return buf
	}
	return b.takeSmall()
}

func (b *buffers) takeSmall() []byte { return smallPool.Get().(*[smallBuffer]byte)[:] }

// takeLarge returns nil when the sandbox holds too many.
func (b *buffers) takeLarge() []byte {
	if b.large.Add(1) > maxLarge {
		b.large.Add(-1)
		return nil
	}
	return largePool.Get().(*[largeBuffer]byte)[:]
}

func (b *buffers) put(buf []byte) {
	if cap(buf) == smallBuffer {
		smallPool.Put((*[smallBuffer]byte)(buf[:smallBuffer]))
		return
	}
	b.large.Add(-1)
	largePool.Put((*[largeBuffer]byte)(buf[:largeBuffer]))
}

// receiver waits until a connection can be read and reads once, into a buffer that it
// takes for that: a connection on which nothing comes holds none.
type receiver struct {
	raw   syscall.RawConn
	most  uint64 // what may be read at a time
	take  func() []byte
	put   func([]byte)
	ready func(fd uintptr) bool // bound once: it would be allocated for each read

	buf []byte
	n   int
	err error
}

func newReceiver(conn syscall.Conn, take func() []byte, put func([]byte)) (*receiver, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &receiver{raw: raw, most: unlimited, take: take, put: put}
	r.ready = r.try
	return r, nil
}

// receive returns a buffer, which the caller puts back, and how many bytes were read into
// it. The buffer is nil with an error; io.EOF is the end of the stream.
func (r *receiver) receive() ([]byte, int, error) {
	r.buf, r.n, r.err = nil, 0, nil
	if err := r.raw.Read(r.ready); err != nil {
		return nil, 0, err
	}
	return r.buf, r.n, r.err
}

func (r *receiver) try(fd uintptr) bool {
	buf := r.take()
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(int(fd), buf[:min(uint64(len(buf)), r.most)]) })
	switch {
	case errors.Is(err, unix.EAGAIN):
		r.put(buf)
		return false
	case err != nil:
		r.put(buf)
		r.err = err
	case n == 0:
		r.put(buf)
		r.err = io.EOF
	default:
		r.buf, r.n = buf, n
	}
	return true
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// errTooLong says that what a client must show does not fit in a large buffer, errNoRoom that
// the sandbox holds too many of those.
var errTooLong, errNoRoom = errors.New("too long"), errors.New("too many large buffers")

// window is the part of a client's stream that has been read and not passed on. Empty, it
// holds no buffer.
type window struct {
	conn    *net.TCPConn
	buffers *buffers
	large   bool // more is coming than the head of something
	r       *receiver
	buf     []byte
	from    int // buf[from:to] is what was read
	to      int
}

func (w *window) len() int      { return w.to - w.from }
func (w *window) bytes() []byte { return w.buf[w.from:w.to] }

// skip drops the first n bytes.
func (w *window) skip(n int) {
	if w.from += n; w.from == w.to {
		w.release()
	}
}

func (w *window) release() {
	if w.buf != nil {
		w.buffers.put(w.buf)
	}
	w.buf, w.from, w.to = nil, 0, 0
}

// fill reads more, waiting for it. It fails with errTooLong or errNoRoom when there is no more room.
func (w *window) fill() error {
	if w.buf == nil {
		return w.first()
	}
	if w.from > 0 {
		w.to = copy(w.buf, w.bytes())
		w.from = 0
	}
	if w.to == len(w.buf) {
		if len(w.buf) == largeBuffer {
			return errTooLong
		}
		large := w.buffers.takeLarge()
		if large == nil {
			return errNoRoom
		}
		copy(large, w.buf)
		w.buffers.put(w.buf)
		w.buf = large
	}
	n, err := w.conn.Read(w.buf[w.to:])
	w.to += n
	if n > 0 {
		return nil
	}
	return err
}

// first waits without a buffer.
func (w *window) first() error {
	if w.r == nil {
		take := func() []byte {
			if w.large {
				return w.buffers.take()
			}
			return w.buffers.takeSmall()
		}
		r, err := newReceiver(w.conn, take, w.buffers.put)
		if err != nil {
			return err
		}
		w.r = r
	}
	buf, n, err := w.r.receive()
	if err != nil {
		return err
	}
	w.buf, w.from, w.to = buf, 0, n
	return nil
}
