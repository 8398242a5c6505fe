package spool

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// byteAt is what a test stream holds at offset off: a pattern that no shift by a
// ring's length repeats.
func byteAt(off int64) byte {
	x := uint64(off) * 0x9e3779b97f4a7c15
	return byte(x >> 56)
}

func pattern(off int64, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byteAt(off + int64(i))
	}
	return p
}

// feeder writes the pattern through a pipe into a spool.
type feeder struct {
	t    testing.TB
	w    *Writer
	r, p *os.File
}

func newFeeder(t testing.TB, dir string, size int64) *feeder {
	t.Helper()
	w, err := NewWriter(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	r, p, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close(); p.Close() })
	return &feeder{t: t, w: w, r: r, p: p}
}

func (f *feeder) feed(n int) {
	f.t.Helper()
	for n > 0 {
		chunk := min(n, 1+rand.IntN(60<<10))
		if _, err := f.p.Write(pattern(f.w.Total(), chunk)); err != nil {
			f.t.Fatal(err)
		}
		n -= chunk
		for want := f.w.Total() + int64(chunk); f.w.Total() < want; {
			if _, err := f.w.Splice(int(f.r.Fd())); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// check reads the whole stream from off and compares every byte that comes.
func check(t testing.TB, file *os.File, l Layout, off, total int64) (got, dropped int64) {
	t.Helper()
	p := make([]byte, 100<<10)
	for {
		n, start, err := ReadAt(file, l, p, off, total)
		if err != nil {
			t.Fatal(err)
		}
		dropped += start - off
		if n == 0 {
			if start != total {
				t.Fatalf("reading ends at %d of %d", start, total)
			}
			return got, dropped
		}
		if !bytes.Equal(p[:n], pattern(start, n)) {
			t.Fatalf("wrong bytes at %d of %d", start, total)
		}
		got += int64(n)
		off = start + int64(n)
	}
}

func TestHeadAndTail(t *testing.T) {
	const size = MinSize
	l := LayoutOf(size)
	f := newFeeder(t, t.TempDir(), size)
	file, err := f.w.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, total := range []int64{0, 1, l.head - 1, l.head, l.head + 1, l.head + l.Tail(), size, size + 1, 3*size +
		12345} {
		f.feed(int(total - f.w.Total()))
		got, dropped := check(t, file, l, 0, total)
		if got+dropped != total {
			t.Errorf("%d bytes: %d kept and %d dropped", total, got, dropped)
		}
		if total <= l.head+l.Tail() && dropped != 0 {
			t.Errorf("%d bytes: %d dropped although all fit", total, dropped)
		}
		if dropped > 0 && got != l.head+l.Tail() {
			t.Errorf("%d bytes: %d kept, want %d", total, got, l.head+l.Tail())
		}
	}
	st, err := file.Stat()
	if err != nil || st.Size() > size {
		t.Errorf("the file has %d bytes, at most %d: %v", st.Size(), int64(size), err)
	}
}

// TestReaderCanNotWrite: hutchd's fd is for reading, also when opened anew.
func TestReaderCanNotWrite(t *testing.T) {
	f := newFeeder(t, t.TempDir(), MinSize)
	file, err := f.w.Reader()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write([]byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("write: %v, want EBADF", err)
	}
	if _, err := f.w.file.WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("the writer's own: %v", err)
	}
}

// TestEnds: an empty pipe and a closed one are told apart.
func TestEnds(t *testing.T) {
	f := newFeeder(t, t.TempDir(), MinSize)
	if _, err := f.w.Splice(int(f.r.Fd())); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("empty pipe: %v, want EAGAIN", err)
	}
	f.feed(10)
	f.p.Close()
	if _, err := f.w.Splice(int(f.r.Fd())); !errors.Is(err, io.EOF) {
		t.Errorf("closed pipe: %v, want EOF", err)
	}
}

// TestFullDisk: the stream flows on, and it is known from where it is lost.
func TestFullDisk(t *testing.T) {
	f := newFeeder(t, t.TempDir(), MinSize)
	f.feed(1000)
	// A file that takes no more stands in for the disk: RLIMIT_FSIZE would end the
	// process, and a small tmpfs needs root.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := f.w.file
	f.w.file = full
	f.feed(5000)
	f.w.file = old
	full.Close()
	if off, lost := f.w.Lost(); !lost || off != 1000 {
		t.Errorf("lost from %d (%v), want 1000", off, lost)
	}
	if f.w.Total() != 6000 {
		t.Errorf("%d bytes flowed, want 6000", f.w.Total())
	}
}

// TestOverwritten: a reader that is overtaken notices.
func TestOverwritten(t *testing.T) {
	l := LayoutOf(MinSize)
	start := l.head + 5
	for total, kept := range map[int64]bool{
		start + 10:              true,
		start + l.Tail():        true,
		start + l.Tail() + 1:    false,
		start + 10*MinSize:      false,
		start + l.Tail() + 1<<9: false,
	} {
		if got := StillKept(l, start, total); got != kept {
			t.Errorf("total %d: kept %v, want %v", total, got, kept)
		}
	}
	if !StillKept(l, l.head-1, 100*MinSize) {
		t.Error("the head was dropped")
	}
}

// FuzzLayout: what is read is not what is being written.
//
// Cost: not measured, because three numbers are of one length.
func FuzzLayout(f *testing.F) {
	f.Add(int64(0), int64(100), int64(MinSize))
	f.Add(int64(5<<20), int64(90<<20), int64(64<<20))
	f.Fuzz(func(t *testing.T, off, total, size int64) {
		if off < 0 || total < off || total > 1<<50 || size < 0 || size > 1<<40 {
			return
		}
		l := LayoutOf(size)
		start := l.Kept(off, total)
		if start < off || (start > total && off <= total) {
			t.Fatalf("off %d of %d goes on at %d", off, total, start)
		}
		pos, room := l.at(start)
		if pos < 0 || room <= 0 || pos+room > l.head+l.ring {
			t.Fatalf("offset %d is at %d+%d of %d", start, pos, room, l.head+l.ring)
		}
		if start < total && start >= l.head && total-start > l.Tail() {
			t.Fatalf("offset %d of %d is offered although the writer may be there", start, total)
		}
	})
}

func BenchmarkSplice(b *testing.B) {
	f := newFeeder(b, b.TempDir(), 64<<20)
	chunk := make([]byte, 64<<10)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := f.p.Write(chunk); err != nil {
			b.Fatal(err)
		}
		for left := int64(len(chunk)); left > 0; {
			n, err := f.w.Splice(int(f.r.Fd()))
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
}
