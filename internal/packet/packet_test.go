package packet

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

type message struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
}

func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	fa, fb, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = New(fa); err != nil {
		t.Fatal(err)
	}
	if b, err = New(fb); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestRoundTrip(t *testing.T) {
	// The JSON around text is 19 bytes for n < 10.
	const frame = len(`{"n":1,"text":""}`)
	for _, size := range []int{0, 1, maxInline - frame, maxInline - frame + 1, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			a, b := pair(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			sent := make(chan error, 1)
			go func() {
				sent <- a.Send(message{N: 1, Text: strings.Repeat("x", size)}, w)
				w.Close()
			}()
			var got message
			files, err := b.Recv(&got)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if got.N != 1 || len(got.Text) != size || len(files) != 1 {
				t.Fatalf("got n=%d, %d bytes, %d fds", got.N, len(got.Text), len(files))
			}
			if flags, err := unix.FcntlInt(files[0].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("received fd: flags %#x, %v; want close-on-exec", flags, err)
			}
			if _, err := files[0].WriteString("hello"); err != nil {
				t.Fatal(err)
			}
			CloseAll(files)
			if data, err := io.ReadAll(r); err != nil || string(data) != "hello" {
				t.Errorf("read %q, %v through the received fd", data, err)
			}
		})
	}
}

func TestSendKeepsNonblocking(t *testing.T) {
	a, b := pair(t)
	x, y, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	defer y.Close()
	if err := a.Send(message{}, x); err != nil {
		t.Fatal(err)
	}
	files, err := b.Recv(&message{})
	if err != nil {
		t.Fatal(err)
	}
	defer CloseAll(files)
	rc, err := files[0].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = rc.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags of the shared description %#x, %v; want O_NONBLOCK", flags, err)
		}
	})
}

func TestLimits(t *testing.T) {
	a, _ := pair(t)
	if err := a.Send(message{Text: strings.Repeat("x", maxLarge+1)}); err == nil {
		t.Error("a message over the limit was sent")
	}
	many := make([]*os.File, maxFDs+1)
	for i := range many {
		many[i] = os.Stderr
	}
	if err := a.Send(message{}, many...); err == nil {
		t.Error("too many fds were sent")
	}
	if err := a.Send(message{N: 2}, many[:maxFDs]...); err != nil {
		t.Errorf("as many fds as allowed: %v", err)
	}
}

func TestEnd(t *testing.T) {
	t.Run("peer closes", func(t *testing.T) {
		a, b := pair(t)
		a.Close()
		if _, err := b.Recv(&message{}); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
		if err := b.Send(message{}); !errors.Is(err, unix.EPIPE) {
			t.Errorf("got %v, want EPIPE", err)
		}
	})
	t.Run("own close wakes receiver", func(t *testing.T) {
		_, b := pair(t)
		done := make(chan error, 1)
		go func() {
			_, err := b.Recv(&message{})
			done <- err
		}()
		b.Close()
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
	})
}

func TestWriteDeadline(t *testing.T) {
	a, _ := pair(t)
	if err := a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", maxInline/2)
	for range 1000 {
		if err := a.Send(message{Text: text}); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want deadline exceeded", err)
			}
			return
		}
	}
	t.Error("a peer that does not read took everything")
}

func TestManySenders(t *testing.T) {
	const senders, each = 8, 200
	a, b := pair(t)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for range each {
				if err := a.Send(message{N: s, Text: strings.Repeat("y", s*100)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	count := make([]int, senders)
	for range senders * each {
		var m message
		if _, err := b.Recv(&m); err != nil {
			t.Fatal(err)
		}
		if len(m.Text) != m.N*100 {
			t.Fatalf("sender %d: %d bytes", m.N, len(m.Text))
		}
		count[m.N]++
	}
	wg.Wait()
	for s, n := range count {
		if n != each {
			t.Errorf("sender %d: %d messages, want %d", s, n, each)
		}
	}
}

// FuzzRecv feeds raw packets: a peer that does not speak the protocol must get
// an error and must not make the receiver keep fds.
func FuzzRecv(f *testing.F) {
	f.Add([]byte(`i{"n":1}`), false)
	f.Add([]byte(`l`), false)
	f.Add([]byte(`l`), true)
	f.Add([]byte(`i`), true)
	f.Add([]byte(`z{}`), false)
	f.Fuzz(func(t *testing.T, raw []byte, fd bool) {
		if len(raw) == 0 || len(raw) > maxInline+64 {
			return
		}
		fa, fb, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer fa.Close()
		b, err := New(fb)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var oob []byte
		if fd {
			oob = unix.UnixRights(int(os.Stderr.Fd()))
		}
		if err := unix.Sendmsg(int(fa.Fd()), raw, oob, nil, 0); err != nil {
			t.Fatal(err)
		}
		var m message
		var files []*os.File
		cost.Once(t, len(raw), func() { files, err = b.Recv(&m) })
		if err != nil && len(files) > 0 {
			t.Errorf("%d fds next to error %v", len(files), err)
		}
		CloseAll(files)
	})
}

// TestFDsLost: a receiver that may open no more files gets the message, is told
// that the fds are lost, and goes on.
func TestFDsLost(t *testing.T) {
	a, b := pair(t)
	if err := a.Send(message{N: 1}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(message{N: 2}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	restore := exhaustFDs(t)
	var m message
	files, err := b.Recv(&m)
	restore()
	if !errors.Is(err, ErrFDsLost) || len(files) != 0 || m.N != 1 {
		t.Fatalf("message %d with %d fds: %v, want message 1 and %v", m.N, len(files), err, ErrFDsLost)
	}
	files, err = b.Recv(&m)
	CloseAll(files)
	if err != nil || len(files) != 1 || m.N != 2 {
		t.Fatalf("message %d with %d fds: %v, want message 2 with one", m.N, len(files), err)
	}
}

// exhaustFDs makes every open(2) of this process fail with EMFILE until restore.
func exhaustFDs(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	free, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = uint64(free) // everything below is in use
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &low), unix.Close(free)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}
}
