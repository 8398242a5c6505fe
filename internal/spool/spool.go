// Package spool stores one output stream of a command: hutch-launch writes it,
// hutchd reads it, and neither can make the other wait.
//
// A stream has absolute offsets from its first byte on. Its file keeps the head,
// and the tail in a ring behind it:
//
//	offset  0 ............ head ............... total-tail ........ total
//	        |    kept      |       dropped      |       kept        |
//	file    [0 ... head)   [head ... head+ring): offset o at head + (o-head) % ring
//
// The file has no name (O_TMPFILE): it goes with the last process that has it
// open, so nothing of it can be left behind. It has no header either: the writer
// tells how much there is by adding to an eventfd(2), after the bytes are there.
// It may be up to MaxChunk bytes ahead of what it has told, which is why that much
// of the ring is never offered to readers.
package spool

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// MaxChunk is the most that a writer stores before it tells, in bytes. It is also
// the largest pipe an ordinary user can make (pipe(7)), so that one call can empty
// one.
const MaxChunk = 1 << 20

// copyChunk is more than a terminal's buffer holds (N_TTY_BUF_SIZE is 4096).
const copyChunk = 16 << 10

// MinSize is the smallest size of a spool, in bytes.
const MinSize = 4 * MaxChunk

// Layout is how a spool of some size is divided. Both sides compute it from the
// size alone.
type Layout struct {
	head, ring int64
}

// LayoutOf divides size bytes, at least MinSize.
func LayoutOf(size int64) Layout {
	size = max(size, MinSize)
	head := size / 4
	return Layout{head: head, ring: size - head}
}

// Tail is how many of the last bytes of a long stream can be read.
func (l Layout) Tail() int64 { return l.ring - MaxChunk }

// at is where the byte at offset off is in the file, and how many bytes from
// there on are contiguous.
func (l Layout) at(off int64) (pos, contiguous int64) {
	if off < l.head {
		return off, l.head - off
	}
	in := (off - l.head) % l.ring
	return l.head + in, l.ring - in
}

// Kept is where reading at off can go on in a stream of total bytes: off itself, or
// the first byte behind what was dropped.
func (l Layout) Kept(off, total int64) int64 {
	if off < l.head {
		return off
	}
	return max(off, total-l.Tail(), l.head)
}

// Writer stores a stream. It is not safe for concurrent use.
type Writer struct {
	file   *os.File
	layout Layout
	total  int64
	// lost is the offset from which on nothing is stored, because the disk is full
	// or broken; -1 while all is well. The stream still flows, into sink.
	lost int64
	sink *os.File
	buf  []byte // of Copy
}

// NewWriter makes a spool of size bytes at most in the file system of dir.
func NewWriter(dir string, size int64) (*Writer, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make spool in %s: %w", dir, err)
	}
	return &Writer{file: os.NewFile(uintptr(fd), "spool"), layout: LayoutOf(size), lost: -1}, nil
}

// Close releases the file. Readers keep theirs.
func (w *Writer) Close() error {
	if w.sink != nil {
		_ = w.sink.Close()
	}
	return w.file.Close()
}

// Reset makes the spool ready for another stream of the same size: making a file costs
// more than a short stream does. Readers of the first must be closed: what it has left
// behind is never offered to those of the next, which learn how much of it there is.
func (w *Writer) Reset() { w.total, w.lost = 0, -1 }

// Total is the length of the stream so far, in bytes.
func (w *Writer) Total() int64 { return w.total }

// Lost is the offset from which on nothing could be stored, and why reading ends
// there; ok is false while everything could.
func (w *Writer) Lost() (off int64, ok bool) { return w.lost, w.lost >= 0 }

// Reader opens the spool for reading, as a file that can be passed to hutchd: one
// that cannot write even if its holder is taken over.
func (w *Writer) Reader() (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.file.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open spool for reading: %w", err)
	}
	return os.NewFile(uintptr(fd), "spool"), nil
}

// Splice moves what the pipe holds into the spool, at most MaxChunk bytes and
// without copying, and returns how many. It does not wait: an empty pipe gives
// EAGAIN, the end of the stream io.EOF. A disk that takes no more never stops it.
func (w *Writer) Splice(pipe int) (int64, error) {
	if w.lost < 0 {
		pos, room := w.layout.at(w.total)
		n, err := unix.Splice(pipe, nil, int(w.file.Fd()), &pos, int(min(room, MaxChunk)),
			unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case err == nil:
			return w.moved(n)
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return 0, err
		}
		w.lost = w.total
	}
	return w.discard(pipe)
}

// Copy is Splice for a terminal's master, from which splice(2) is not possible on every
// kernel. It returns what it has moved, until the next call.
func (w *Writer) Copy(terminal int) ([]byte, error) {
	if w.buf == nil {
		w.buf = make([]byte, copyChunk)
	}
	n, err := sys.ReadMasterFD(terminal, w.buf)
	if errors.Is(err, unix.EIO) { // no slave is open any more
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	for data := w.buf[:n]; len(data) > 0; {
		pos, room := w.layout.at(w.total)
		part := data[:min(int64(len(data)), room)]
		if w.lost < 0 {
			if _, err := w.file.WriteAt(part, pos); err != nil {
				w.lost = w.total
			}
		}
		w.total += int64(len(part))
		data = data[len(part):]
	}
	return w.buf[:n], nil
}

// discard keeps the command running when nothing can be stored.
func (w *Writer) discard(pipe int) (int64, error) {
	if w.sink == nil {
		sink, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return 0, fmt.Errorf("discard a stream: %w", err)
		}
		w.sink = sink
	}
	n, err := unix.Splice(pipe, nil, int(w.sink.Fd()), nil, MaxChunk, unix.SPLICE_F_NONBLOCK)
	if err != nil {
		return 0, err
	}
	return w.moved(n)
}

func (w *Writer) moved(n int64) (int64, error) {
	if n == 0 {
		return 0, io.EOF
	}
	w.total += n
	return n, nil
}

// ReadAt reads from a spool file of the given layout into p. total is how long the
// stream is known to be. It returns how many bytes it read and where they start:
// behind off when what was there has been dropped. At total it returns 0.
//
// The caller learns the total anew after ReadAt and calls StillKept, because the
// writer does not wait.
func ReadAt(file *os.File, l Layout, p []byte, off, total int64) (n int, start int64, err error) {
	start = l.Kept(off, total)
	if start >= total {
		return 0, start, nil
	}
	pos, contiguous := l.at(start)
	limit := min(int64(len(p)), contiguous, total-start)
	n, err = file.ReadAt(p[:limit], pos)
	if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return 0, start, fmt.Errorf("read spool at %d: %w", start, err)
	}
	return n, start, nil
}

// StillKept reports whether what was read at start was still there when the
// stream had grown to total: otherwise it may have been overwritten meanwhile and
// must be read again.
func StillKept(l Layout, start, total int64) bool { return l.Kept(start, total) == start }
