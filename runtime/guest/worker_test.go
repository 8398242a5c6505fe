package guest_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// worker starts a files worker as user.
func (s *sandbox) worker(user string) (*filesapi.Client, *guestapi.Exec) {
	s.t.Helper()
	ours, theirs, err := packet.Pair()
	if err != nil {
		s.t.Fatal(err)
	}
	defer theirs.Close()
	null := open(s.t, "/dev/null")
	e, err := s.Start(s.t.Context(), guestapi.Request{Worker: guestapi.WorkerFiles, User: user},
		[]*os.File{theirs, null, null})
	if err != nil {
		_ = ours.Close()
		s.t.Fatal(err)
	}
	c := filesapi.NewClient(ours)
	s.t.Cleanup(func() { _ = c.Close() })
	return c, e
}

// TestWorkerRights: a worker is held by what holds a command of the same user, and
// ends with its channel.
func TestWorkerRights(t *testing.T) {
	eachKind(t, func(t *testing.T, s *sandbox) {
		users := []string{"0"}
		if s.ids == rangeMap {
			users = append(users, "1000:1000")
		}
		for _, user := range users {
			c, e := s.worker(user)
			_, data, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpRead, Path: "/proc/self/status",
				Limit: 1 << 16}, nil, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			_, wait, err := s.start(guestapi.Request{Argv: []string{"cat", "/proc/self/status"}, User: user})
			if err != nil {
				t.Fatal(err)
			}
			command := wait().out
			for _, field := range []string{"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
				"CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:"} {
				if got, want := line(string(data), field), line(command, field); got != want || want == "" {
					t.Errorf("user %s: %q, a command has %q", user, got, want)
				}
			}
			if name := line(string(data), "Name:"); !strings.HasSuffix(name, "hutch-files") {
				t.Errorf("it is called %q", name)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if ev, err := e.Wait(t.Context()); err != nil || ev.Status != 0 {
				t.Errorf("status %#x, %v", ev.Status, err)
			}
		}
	})
}

// line is the line of a text that begins with field.
func line(text, field string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, field) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// TestWorkerKill: a worker leaves nothing behind, so that neither its kill takes
// another's orphan, nor does the worker hide one.
func TestWorkerKill(t *testing.T) {
	s := newSandbox(t, singleMap)
	c, w := s.worker("0")
	if _, _, err := c.Call(t.Context(), filesapi.Request{Op: filesapi.OpStat, Path: "/"}, nil, 0); err != nil {
		t.Fatal(err)
	}
	const orphan = `setsid sh -c 'echo $$ >/tmp/orphan; exec sleep 4242' >/dev/null 2>&1 & while ! [ -s /tmp/orphan ]; do :; done; cat /tmp/orphan; `
	alive := func(pid string) bool { // a zombie waits for PID 1 only
		return s.sh("grep -qs '^State:.[^ZX]' /proc/"+pid+"/status && echo yes; true") == "yes"
	}
	pid := s.sh(orphan)
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	if ev, err := w.Wait(t.Context()); err != nil || syscall.WaitStatus(ev.Status).Signal() != unix.SIGKILL ||
		len(ev.Killed) > 1 {
		t.Errorf("%+v, %v", ev, err)
	}
	if !alive(pid) {
		t.Error("the kill of a worker took another's orphan")
	}
	s.sh("kill -9 " + pid + "; rm /tmp/orphan")

	s.worker("0") // older than what follows
	e, wait, err := s.start(argv("sh", "-c", orphan+"exec sleep 4242"))
	if err != nil {
		t.Fatal(err)
	}
	pid = s.sh("while ! [ -s /tmp/orphan ]; do :; done; cat /tmp/orphan")
	if err := e.Kill(); err != nil {
		t.Fatal(err)
	}
	wait()
	if alive(pid) {
		t.Error("a worker hid an orphan from the kill of its exec")
	}
}
