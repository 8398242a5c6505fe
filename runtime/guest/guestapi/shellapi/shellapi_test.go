package shellapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// newFake returns a client and the worker's end of its channel.
func newFake(t *testing.T) (*Client, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(os.NewFile(uintptr(fds[0]), "ours"))
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _ = theirs.Close() })
	t.Cleanup(func() { _ = c.Close() })
	return c, theirs
}

func TestClient(t *testing.T) {
	c, worker := newFake(t)
	if err := c.Send(Request{Op: OpRun, Run: 7, Command: "a\nb"}); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(worker).ReadString('\n'); err != nil ||
		line != `{"op":"run","run":7,"command":"a\nb"}`+"\n" {
		t.Errorf("%q %v", line, err)
	}
	if _, err := worker.WriteString(`{"ev":"done","run":6}` + "\n" + `{"ev":"aborted","run":7,"killed":[1,2]}` +
		"\n"); err != nil {
		t.Fatal(err)
	}
	if ev, err := c.Await(t.Context(), 7); err != nil || ev.Ev != EvAborted || len(ev.Killed) != 2 {
		t.Errorf("%+v %v", ev, err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, io.ErrNoProgress)
	defer cancel()
	if _, err := c.Await(ctx, 8); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	_ = worker.Close()
	if _, err := c.Await(t.Context(), 8); !errors.Is(err, ErrGone) || !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := c.Send(Request{Op: OpAbort}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// TestResume: a client that takes over gets in step, whatever its predecessor has read
// and written of a line.
func TestResume(t *testing.T) {
	for _, left := range []string{"", `{"ev":"done","run":6}` + "\n", `ne","run":6}` + "\n", "}\n", "\n"} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		worker := os.NewFile(uintptr(fds[1]), "theirs")
		if _, err := worker.WriteString(left); err != nil {
			t.Fatal(err)
		}
		c := ResumeClient(os.NewFile(uintptr(fds[0]), "ours"))
		if err := c.Send(Request{Op: OpAsk, Run: 7}); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(worker).ReadString('7'); err != nil || line != "\n"+`{"op":"ask","run":7` {
			t.Errorf("%q %v", line, err)
		}
		if _, err := worker.WriteString(`{"ev":"never","run":7}` + "\n"); err != nil {
			t.Fatal(err)
		}
		if ev, err := c.Await(t.Context(), 7); err != nil || ev.Ev != EvNever {
			t.Errorf("%q is left: %+v %v", left, ev, err)
		}
		if _, err := worker.WriteString("nonsense\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Await(t.Context(), 7); !errors.Is(err, ErrGone) { // only the first line may be one
			t.Error(err)
		}
		_ = c.Close()
		_ = worker.Close()
	}
}

// TestHostile: what a worker that was taken over can say.
func TestHostile(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":         "hello\n",
		"unknown event":   `{"ev":"reboot","run":1}` + "\n",
		"status":          `{"ev":"done","run":1,"status":256}` + "\n",
		"wait status":     `{"ev":"over","run":1,"status":4991}` + "\n", // stopped
		"other runs":      strings.Repeat(`{"ev":"done","run":2}`+"\n", 100),
		"a line too long": `{"ev":"` + strings.Repeat("x", MaxEvent) + `"}` + "\n",
		"many pids":       `{"ev":"aborted","run":1,"killed":[` + strings.Repeat("1,", MaxKilled) + `1]}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, worker := newFake(t)
			if _, err := worker.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if ev, err := c.Await(t.Context(), 1); !errors.Is(err, ErrGone) {
				t.Errorf("%+v %v", ev, err)
			}
		})
	}
}

// TestFlood: nothing is read ahead of who waits.
func TestFlood(t *testing.T) {
	_, worker := newFake(t)
	if err := worker.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := worker.WriteString(strings.Repeat(`{"ev":"done","run":2}`+"\n", 1<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n > 4<<20 {
		t.Errorf("%d bytes were taken, %v", n, err)
	}
}

func FuzzReadEvent(f *testing.F) {
	f.Add([]byte(`{"ev":"up"}` + "\n"))
	f.Add([]byte(`{"ev":"done","run":1,"status":3}` + "\n" + `{"ev":"over","run":2,"status":9}` + "\n"))
	f.Add([]byte(`{"ev":"aborted","run":1,"killed":[1,2,-3]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cost.Input(t, data, func(data []byte) {
			in := bufio.NewReaderSize(strings.NewReader(string(data)), MaxEvent)
			for {
				ev, err := ReadEvent(in)
				if err != nil {
					return
				}
				if ev.Status < 0 || ev.Status > 0xffff || len(ev.Killed) > MaxKilled {
					t.Errorf("%+v", ev)
				}
			}
		})
	})
}
