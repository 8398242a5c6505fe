package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// stream is one pipe and its spool.
type stream struct {
	pipe     *os.File // the end that is read
	terminal bool     // it is a terminal's master
	mirror   *mirror  // a terminal's caller; nil without one

	mu sync.Mutex // guards what follows: the loop and flush splice in turn
	w  *spool.Writer
	// told is the eventfd that hutchd counts the bytes with. It is no os.File: those
	// make an fd blocking, for hutchd's duplicate too.
	told   int
	ended  bool // all that the pipe will ever hold is stored, and hutchd was told so
	closed bool
	forget func() // gives w back
}

func (x *execs) newStream(size int64, pipe *os.File) (*stream, error) {
	w, err := x.writer(size)
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	forget := func() { x.giveBack(w, size) }
	return &stream{pipe: pipe, terminal: isTerminal(pipe), told: -1, w: w, forget: forget}, nil
}

// share makes the two files that hutchd gets: the spool for reading and a new eventfd,
// which counts from the stream's first byte on. A hutchd before has no use for its own
// any more.
func (st *stream) share() (out []*os.File, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, os.ErrClosed
	}
	reader, err := st.w.Reader()
	if err != nil {
		return nil, err
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		var theirs int
		if theirs, err = unix.FcntlInt(uintptr(efd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			out = []*os.File{reader, os.NewFile(uintptr(theirs), "spool counter")}
		} else {
			_ = unix.Close(efd)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a spool's eventfd: %w", err), reader.Close())
	}
	if st.told >= 0 {
		_ = unix.Close(st.told)
	}
	st.told = efd
	n := st.kept()
	if st.ended {
		n += launchapi.StreamEnd
	}
	return out, st.tell(n)
}

// kept is how much of the stream was stored: what a full disk did not take, nobody may
// read, since older bytes are in its place.
func (st *stream) kept() int64 {
	if off, lost := st.w.Lost(); lost {
		return off
	}
	return st.w.Total()
}

// tell adds to what hutchd knows of; mu is held.
func (st *stream) tell(n int64) error {
	if n == 0 {
		return nil
	}
	var count [8]byte
	binary.NativeEndian.PutUint64(count[:], uint64(n))
	_, err := unix.Write(st.told, count[:])
	return err
}

// run spools until the pipe's last writer is gone or the stream is closed.
func (st *stream) run() {
	rc, err := st.pipe.SyscallConn()
	if err != nil {
		return
	}
	for ended := false; !ended; {
		if st.mirror != nil {
			st.mirror.await(maxMirrored)
		}
		err := rc.Read(func(fd uintptr) bool {
			err := st.splice(int(fd))
			ended = err != nil && !errors.Is(err, unix.EAGAIN)
			return err == nil || ended // EAGAIN waits for the poller
		})
		if err != nil {
			return // closed
		}
	}
}

// splice moves what there is, at most a chunk, and tells hutchd.
func (st *stream) splice(fd int) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return os.ErrClosed
	}
	before := st.kept()
	err := st.move(fd)
	if errors.Is(err, unix.EINTR) {
		return nil // once more
	}
	if errors.Is(err, io.EOF) {
		st.end()
	}
	if err != nil {
		return err
	}
	return st.tell(st.kept() - before)
}

// end tells hutchd, once, that nothing is left to flush; mu is held. What was lost only
// flush tells.
func (st *stream) end() {
	if _, lost := st.w.Lost(); !lost && !st.ended && !st.terminal {
		st.ended = true
		_ = st.tell(launchapi.StreamEnd) // or hutchd asks
	}
}

// move moves a chunk into the spool.
func (st *stream) move(fd int) error {
	if !st.terminal {
		_, err := st.w.Splice(fd)
		return err
	}
	data, err := st.w.Copy(fd)
	if st.mirror != nil {
		st.mirror.add(data)
	}
	return err
}

// held is the length of the stream with what its pipe holds now: whoever writes on must
// not keep flush going. A terminal's master does not tell; it is less than a megabyte.
func (st *stream) held(fd int) int64 {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if st.terminal || err != nil {
		n = 1 << 20
	}
	return st.total() + int64(n)
}

func (st *stream) total() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.w.Total()
}

// flush spools what the pipe holds now, without waiting for its end.
func (st *stream) flush() launchapi.Spooled {
	rc, err := st.pipe.SyscallConn()
	if err == nil {
		_ = rc.Control(func(fd uintptr) {
			for end := st.held(int(fd)); st.total() < end && st.splice(int(fd)) == nil; {
			}
		})
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	res := launchapi.Spooled{Total: st.w.Total(), Lost: -1}
	if off, lost := st.w.Lost(); lost {
		res.Lost = off
	}
	return res
}

func (st *stream) close() {
	_ = st.pipe.Close() // ends run
	if st.mirror != nil {
		st.mirror.close()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return
	}
	st.closed = true
	st.forget()
	if st.told >= 0 {
		_ = unix.Close(st.told)
	}
}

// freeSpool is a spool that was short and is kept to be used again.
type freeSpool struct {
	w    *spool.Writer
	size int64
}

const (
	maxFree      = 8       // spools kept of one sandbox
	maxFreeBytes = 1 << 20 // that one of them may hold
)

// writer is a spool for a new stream.
func (x *execs) writer(size int64) (*spool.Writer, error) {
	x.mu.Lock()
	for i, f := range x.free {
		if f.size == size {
			x.free = slices.Delete(x.free, i, i+1)
			x.mu.Unlock()
			return f.w, nil
		}
	}
	x.mu.Unlock()
	return spool.NewWriter(x.dir, size)
}

// giveBack takes the spool of a stream that is forgotten.
func (x *execs) giveBack(w *spool.Writer, size int64) {
	_, lost := w.Lost()
	x.mu.Lock()
	keep := !x.closed && !lost && w.Total() <= maxFreeBytes && len(x.free) < maxFree
	if keep {
		w.Reset()
		x.free = append(x.free, freeSpool{w, size})
	}
	x.mu.Unlock()
	if !keep {
		_ = w.Close()
	}
}
