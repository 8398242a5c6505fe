package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// whose are the execs that events are of, in their order.
type whose struct{ told chan string }

func (w whose) Emit(_ api.EventKind, _, exec string, data any) {
	w.told <- exec + " " + data.(api.FileEvent).Path
}

// silentInit is a PID 1 that does what the test says, and the client of it.
type silentInit struct {
	t    *testing.T
	conn int
	c    *guestapi.Client
}

func newSilentInit(t *testing.T) *silentInit {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := guestapi.NewClient(os.NewFile(uintptr(fds[0]), "guest"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fds[1])
		_ = c.Close()
	})
	return &silentInit{t, fds[1], c}
}

func (i *silentInit) says(ev guestapi.Event) {
	i.t.Helper()
	data, err := json.Marshal(ev)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := unix.Send(i.conn, data, 0); err != nil {
		i.t.Fatal(err)
	}
}

// refuses says that a process of a session was refused a file.
func (i *silentInit) refuses(session int, path string) {
	i.t.Helper()
	i.says(guestapi.Event{Ev: guestapi.EvRefused, Refused: &guestapi.Refused{
		NR: unix.SYS_OPENAT, Errno: int(unix.EACCES), Count: 1, PID: session, Session: session,
		File: &guestapi.RefusedFile{Op: "read", Path: path, At: guestapi.RefusedAt{Mode: unix.S_IFREG | 0o600,
			FSUID: 1000}},
	}})
}

// TestDeniedEarly: what a command is refused before PID 1 says that it runs is the command's own, also beside others
// that start, and what nobody has started is reported as nobody's.
func TestDeniedEarly(t *testing.T) {
	w := whose{make(chan string, 8)}
	m := NewManager(Config{Events: w})
	pid1 := newSilentInit(t)
	s := &Sandbox{id: "sb_1", execs: map[string]*running{}, guest: pid1.c}
	m.byID[s.id] = s
	m.watchCalls(s)

	type start struct {
		r    *running
		done chan error
	}
	begin := func(id string) start {
		r := &running{id: id, s: s, guest: s.guest.NewID()}
		s.launching(r)
		done := make(chan error, 1)
		go func() {
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err == nil {
				r.exec, err = s.guest.Start(t.Context(), guestapi.Request{Exec: r.guest, Argv: []string{"true"}},
					[]*os.File{null, null, null})
			}
			done <- err
		}()
		if _, err := unix.Read(pid1.conn, make([]byte, 64<<10)); err != nil { // the request
			t.Fatal(err)
		}
		return start{r, done}
	}
	told := func(want string) {
		t.Helper()
		if got := <-w.told; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}

	a, b, c := begin("ex_a"), begin("ex_b"), begin("ex_c")
	pid1.refuses(7, "/a") // of a, which nobody knows yet
	pid1.refuses(9, "/left")
	pid1.says(guestapi.Event{Ev: guestapi.EvStarted, Exec: b.r.guest, PID: 8})
	pid1.refuses(8, "/b")
	told("ex_b /b") // is held up by nobody
	if err := <-b.done; err != nil {
		t.Fatal(err)
	}
	m.addExec(b.r)
	pid1.says(guestapi.Event{Ev: guestapi.EvStarted, Exec: a.r.guest, PID: 7})
	if err := <-a.done; err != nil {
		t.Fatal(err)
	}
	m.addExec(a.r)
	told("ex_a /a")
	pid1.says(guestapi.Event{Ev: guestapi.EvFailed, Exec: c.r.guest, Reason: guestapi.ReasonNotFound,
		Errno: int(unix.ENOENT), Message: "none"})
	if err := <-c.done; err == nil {
		t.Fatal("started")
	}
	s.launched(c.r)
	m.tellEarly(s)
	told(" /left")
	pid1.refuses(9, "/later")
	told(" /later")
	for r, want := range map[*running]string{a.r: "[read /a]", b.r: "[read /b]", c.r: "[]"} {
		got := []string{}
		for _, d := range r.takeRefused() {
			got = append(got, d.Target)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s was refused %v, want %s", r.id, got, want)
		}
	}
	if len(s.early) > 0 {
		t.Errorf("still held: %v", s.early)
	}
}
