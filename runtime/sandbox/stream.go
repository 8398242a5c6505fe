package sandbox

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

// spoolSize is how many bytes are kept of each output stream.
const spoolSize = 64 << 20

// stream is an output stream of an exec, as hutch-launch spools it. hutchd only
// reads it.
type stream struct {
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

// openStream owns s's files from now on.
func openStream(s launchapi.Stream, more func(int64)) *stream {
	st := &stream{
		file: s.File, count: s.Count, layout: spool.LayoutOf(spoolSize), more: more,
		grown: make(chan struct{}), closed: make(chan struct{}),
	}
	go st.watch()
	return st
}

// watch learns of new bytes until the stream is closed.
func (st *stream) watch() {
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
func (st *stream) learn(fd int) {
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

// known is how long the stream is by now, and a channel that is closed when it
// has become longer.
func (st *stream) known() (int64, <-chan struct{}) {
	if !st.isEnded() {
		if rc, err := st.count.SyscallConn(); err == nil {
			_ = rc.Control(func(fd uintptr) { st.learn(int(fd)) })
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.total, st.grown
}

func (st *stream) isEnded() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.ended
}

// stored reports whether hutch-launch has told that all of the stream is stored.
func (st *stream) stored() bool {
	st.known()
	return st.isEnded()
}

// read reads at most limit bytes at off, or behind what was dropped there.
func (st *stream) read(off, limit int64) (data []byte, start int64, err error) {
	buf := make([]byte, limit)
	n, start, err := st.readInto(buf, off)
	return buf[:n], start, err
}

// readInto is read with a buffer of the caller's.
func (st *stream) readInto(buf []byte, off int64) (n int, start int64, err error) {
	for {
		total, _ := st.known()
		n, start, err := spool.ReadAt(st.file, st.layout, buf, off, total)
		if err != nil {
			return 0, start, err
		}
		// The writer does not wait: what was read may have been overwritten.
		if total, _ = st.known(); spool.StillKept(st.layout, start, total) {
			return n, start, nil
		}
		off = start
	}
}

// awaitByte waits until there is a byte at off, or done is closed.
func (st *stream) awaitByte(ctx context.Context, off int64, done <-chan struct{}) {
	for {
		total, grown := st.known()
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

// excerpt reads the head and the tail of the stream, limit bytes together.
func (st *stream) excerpt(limit int64) (*excerpt.Excerpt, error) {
	total, _ := st.known()
	return st.excerptOf(0, total, limit)
}

// excerptOf is excerpt of [from, to) alone.
func (st *stream) excerptOf(from, to, limit int64) (*excerpt.Excerpt, error) {
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
func (st *stream) readAll(from, to int64) ([]byte, error) {
	var all []byte
	for from < to {
		data, start, err := st.read(from, min(to-from, 1<<20))
		if err != nil || len(data) == 0 {
			return all, err
		}
		all = append(all, data...)
		from = start + int64(len(data))
	}
	return all, nil
}

// close releases the stream. An exec and its sandbox may forget it at once.
func (st *stream) close() {
	st.once.Do(func() {
		close(st.closed)
		_ = st.count.Close() // ends watch
		_ = st.file.Close()
	})
}
