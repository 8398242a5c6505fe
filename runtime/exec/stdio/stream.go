package stdio

import (
	"context"
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Stream is an output stream of an exec, as hutch-launch spools it. hutchd only
// reads it.
type Stream struct {
	file   *os.File // the spool
	count  *os.File // eventfd: what was added since it was last read
	layout spool.Layout
	more   func(n int64) // told about what was added; called with mu held

	mu     sync.Mutex
	total  int64         // bytes that are known to be there
	ended  bool          // and no more will come
	grown  chan struct{} // closed, and made anew, when total grows
	closed chan struct{} // closed with the stream
	once   sync.Once     // guards close
}

// Open reads what hutch-launch writes to a spool of a size, and tells more how much was added, which must not wait. It
// owns the files from now on.
func Open(s launchapi.Stream, size int64, more func(int64)) *Stream {
	st := &Stream{
		file: s.File, count: s.Count, layout: spool.LayoutOf(size), more: more,
		grown: make(chan struct{}), closed: make(chan struct{}),
	}
	go st.watch()
	return st
}

// watch learns of new bytes until the stream is closed.
func (st *Stream) watch() {
	rc, err := st.count.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Read(func(fd uintptr) bool {
		st.learn(int(fd))
		return false // wait for more, until the file is closed
	})
}

// learn reads the counter and adds it, in one step for all who do so.
func (st *Stream) learn(fd int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var n [8]byte
	if got, err := unix.Read(fd, n[:]); err != nil || got != len(n) {
		return // nothing new
	}
	count := binary.NativeEndian.Uint64(n[:])
	st.ended = st.ended || count&launchapi.StreamEnd != 0
	added := int64(count &^ launchapi.StreamEnd)
	st.total += added
	st.more(added)
	close(st.grown)
	st.grown = make(chan struct{})
}

// Known is how long the stream is by now, and a channel that is closed when it
// has become longer.
func (st *Stream) Known() (int64, <-chan struct{}) {
	if !st.isEnded() {
		if rc, err := st.count.SyscallConn(); err == nil {
			_ = rc.Control(func(fd uintptr) { st.learn(int(fd)) })
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.total, st.grown
}

// Len is how long the stream is by now.
func (st *Stream) Len() int64 {
	total, _ := st.Known()
	return total
}

func (st *Stream) isEnded() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.ended
}

// stored reports whether hutch-launch has told that all of the stream is stored.
func (st *Stream) stored() bool {
	st.Known()
	return st.isEnded()
}

// Read reads at most limit bytes at off, or behind what was dropped there.
func (st *Stream) Read(off, limit int64) (data []byte, start int64, err error) {
	buf := make([]byte, limit)
	n, start, err := st.ReadInto(buf, off)
	return buf[:n], start, err
}

// ReadInto is Read with a buffer of the caller's.
func (st *Stream) ReadInto(buf []byte, off int64) (n int, start int64, err error) {
	for {
		total, _ := st.Known()
		n, start, err := spool.ReadAt(st.file, st.layout, buf, off, total)
		if err != nil {
			return 0, start, err
		}
		// The writer does not wait: what was read may have been overwritten.
		if total, _ = st.Known(); spool.StillKept(st.layout, start, total) {
			return n, start, nil
		}
		off = start
	}
}

// AwaitByte waits until there is a byte at off, or done is closed.
func (st *Stream) AwaitByte(ctx context.Context, off int64, done <-chan struct{}) {
	for {
		total, grown := st.Known()
		if total > off {
			return
		}
		select {
		case <-grown:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Excerpt reads the head and the tail of the stream, limit bytes together.
func (st *Stream) Excerpt(limit int64) (*excerpt.Excerpt, error) {
	total, _ := st.Known()
	return st.ExcerptOf(0, total, limit)
}

// ExcerptOf is Excerpt of [from, to) alone.
func (st *Stream) ExcerptOf(from, to, limit int64) (*excerpt.Excerpt, error) {
	x := &excerpt.Excerpt{Total: to - from}
	if x.Total <= limit {
		head, err := st.readAll(from, to)
		x.Head = head
		return x, err
	}
	var err error
	if x.Head, err = st.readAll(from, from+limit/2); err != nil {
		return x, err
	}
	x.Tail, err = st.readAll(to-limit/2, to)
	return x, err
}

// readAll reads [from, to), or what is kept of it.
func (st *Stream) readAll(from, to int64) ([]byte, error) {
	var all []byte
	for from < to {
		data, start, err := st.Read(from, min(to-from, 1<<20))
		if err != nil || len(data) == 0 {
			return all, err
		}
		all = append(all, data...)
		from = start + int64(len(data))
	}
	return all, nil
}

// Closed is closed when the stream cannot be read any more.
func (st *Stream) Closed() <-chan struct{} { return st.closed }

// Close releases the stream. An exec and its sandbox may forget it at once.
func (st *Stream) Close() {
	st.once.Do(func() {
		close(st.closed)
		_ = st.count.Close() // ends watch
		_ = st.file.Close()
	})
}
