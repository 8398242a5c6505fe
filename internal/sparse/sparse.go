// Package sparse writes files in which long zeros are holes: a sandbox's file of a few kilobytes may have a terabyte of
// them, and what copies it must not fill its disk.
package sparse

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// Block is how many zeros become a hole: an archive does not say which of a file's zeros were none, so that files with
// few of them stay in one piece.
const Block = 64 << 10

// piece is what is looked at together.
const piece = 4 << 10

var zeros [Block]byte

// Writer writes to a new regular file.
type Writer struct {
	fd   int
	at   int64 // the end of what has come
	pend int64 // zeros in front of that, which are not written yet
}

// NewWriter writes to a file that is empty; its offset stays where it is.
func NewWriter(fd int) *Writer { return &Writer{fd: fd} }

// Write is io.Writer's.
func (w *Writer) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n := same(p[done:], true)
		w.at, w.pend, done = w.at+int64(n), w.pend+int64(n), done+n
		if done == len(p) {
			break
		}
		if err := w.settle(); err != nil {
			return done, err
		}
		n = same(p[done:], false)
		if err := w.write(p[done:done+n], w.at); err != nil {
			return done, err
		}
		w.at, done = w.at+int64(n), done+n
	}
	return done, nil
}

// End gives a file that ends in zeros its size. It is to be called once, behind the last Write.
func (w *Writer) End() error {
	if w.pend < Block {
		return w.settle()
	}
	return unix.Ftruncate(w.fd, w.at)
}

// same is how much of p, in pieces, is all zeros at its begin, or is not.
func same(p []byte, zero bool) (n int) {
	for n < len(p) {
		end := min(n+piece, len(p))
		if bytes.Equal(p[n:end], zeros[:end-n]) != zero {
			break
		}
		n = end
	}
	return n
}

// settle writes the zeros that wait, unless they are enough for a hole.
func (w *Writer) settle() error {
	n := w.pend
	w.pend = 0
	if n == 0 || n >= Block {
		return nil
	}
	return w.write(zeros[:n], w.at-n)
}

func (w *Writer) write(p []byte, at int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(w.fd, p, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
