package launch

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// foreignPipe is a pipe whose ends hutchd could not open anew.
func foreignPipe(t *testing.T) (r, w *foreign) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	ends := [2]*foreign{}
	for i, fd := range fds {
		stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = &foreign{f: os.NewFile(uintptr(fd), "pipe"), stop: os.NewFile(uintptr(stop), "eventfd")}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// TestForeign: what goes in comes out, more than the pipe holds, up to its end.
func TestForeign(t *testing.T) {
	r, w := foreignPipe(t)
	want := strings.Repeat("0123456789abcdef", 20_000)
	go func() {
		_, _ = io.WriteString(w, want)
		w.Close()
	}()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Fatalf("read %d bytes of %d: %v", len(got), len(want), err)
	}
}

// TestForeignClose: Close ends a read of an empty pipe and a write to a full one,
// although nobody else does anything.
func TestForeignClose(t *testing.T) {
	for _, c := range []struct {
		name  string
		block func(r, w *foreign) (io.Closer, func() error)
	}{
		{"read", func(r, _ *foreign) (io.Closer, func() error) {
			return r, func() error { _, err := r.Read(make([]byte, 10)); return err }
		}},
		{"write", func(_, w *foreign) (io.Closer, func() error) {
			return w, func() error { _, err := w.Write(make([]byte, 1<<20)); return err }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w := foreignPipe(t)
			end, block := c.block(r, w)
			ended := make(chan error, 1)
			go func() { ended <- block() }()
			if err := end.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, os.ErrClosed) {
				t.Fatalf("ended with %v, want %v", err, os.ErrClosed)
			}
		})
	}
}
