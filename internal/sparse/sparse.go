// Package sparse writes files in which long zeros are holes: a sandbox's file of a few kilobytes may have a terabyte of them, and what
// copies it must not fill its disk.
package sparse

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"
)

// Block is the unit in which zeros become holes: an archive does not say which of a file's zeros were none, so that files with few
// of them stay in one piece.
const Block = 64 << 10

var zeros [Block]byte

// Writer writes to a new regular file.
type Writer struct {
	fd      int
	at      int64 // where the next byte goes
	skipped bool  // the byte before is in a hole
}

// NewWriter writes to a file that is empty; its offset stays where it is.
func NewWriter(fd int) *Writer { return &Writer{fd: fd} }

// Write is io.Writer's.
func (w *Writer) Write(p []byte) (done int, err error) {
	for done < len(p) {
		end := done
		for end < len(p) {
			next := min(len(p), end+int(Block-(w.at+int64(end-done))%Block))
			if next-end == Block && bytes.Equal(p[end:next], zeros[:]) {
				break
			}
			end = next
		}
		if end == done {
			w.at, w.skipped, done = w.at+Block, true, done+Block
			continue
		}
		n, err := unix.Pwrite(w.fd, p[done:end], w.at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		w.at, w.skipped, done = w.at+int64(n), false, done+n
	}
	return done, nil
}

// End gives a file that ends in a hole its size.
func (w *Writer) End() error {
	if !w.skipped {
		return nil
	}
	return unix.Ftruncate(w.fd, w.at)
}
