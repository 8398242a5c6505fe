// Package stdiotest is for tests of what reads the output of commands: the far end of a stream, as hutch-launch has it.
package stdiotest

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Size is how large the spools are: much is written over in them.
const Size = spool.MinSize

// Source is the far end of a stream.
type Source struct {
	t       testing.TB
	w       *spool.Writer
	in, out *os.File
	count   *os.File
}

// New makes one, and the stream as hutchd gets it, whose files are the caller's.
func New(t testing.TB) (*Source, launchapi.Stream) {
	t.Helper()
	w, err := spool.NewWriter(t.TempDir(), Size)
	if err != nil {
		t.Fatal(err)
	}
	file, err := w.Reader()
	if err != nil {
		t.Fatal(err)
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	dup, err := unix.FcntlInt(uintptr(efd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(out.Fd(), unix.F_SETPIPE_SZ, spool.MaxChunk); err != nil {
		t.Fatal(err)
	}
	s := &Source{t, w, in, out, os.NewFile(uintptr(efd), "count")}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{w, in, out, s.count} {
			_ = c.Close()
		}
	})
	return s, launchapi.Stream{File: file, Count: os.NewFile(uintptr(dup), "count")}
}

// Write puts data into the spool, and tells.
func (s *Source) Write(data string) {
	for len(data) > 0 {
		part := data[:min(len(data), spool.MaxChunk/2)]
		data = data[len(part):]
		if _, err := s.out.WriteString(part); err != nil {
			s.t.Error(err)
			return
		}
		for left := int64(len(part)); left > 0; {
			n, err := s.w.Splice(int(s.in.Fd()))
			if err != nil {
				s.t.Error(err)
				return
			}
			left -= n
			s.add(uint64(n))
		}
	}
}

// End tells that there will be no more.
func (s *Source) End() { s.add(launchapi.StreamEnd) }

func (s *Source) add(n uint64) {
	var add [8]byte
	binary.NativeEndian.PutUint64(add[:], n)
	if _, err := s.count.Write(add[:]); err != nil {
		s.t.Error(err)
	}
}
