package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMustRelay: what may cross into a sandbox as it is, what is relayed and what
// is refused.
func TestMustRelay(t *testing.T) {
	dir := t.TempDir()
	open := func(path string, flags int) *os.File {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), path)
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sock, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	master := open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY)

	for _, c := range []struct {
		name, user string
		f          *os.File
		relay, ok  bool
	}{
		{"pipe", "", r, false, true},
		{"pipe of root's for root", "0:0", w, false, true},
		{"pipe for another user", "1000", w, true, true},
		{"fifo", "0:1000", open(fifo, unix.O_RDWR), false, true},
		{"pipe for whom the image calls root", "root", w, true, true},
		{"/dev/null", "", open("/dev/null", unix.O_RDWR), false, true},
		{"regular file", "", open(filepath.Join(dir, "file"), unix.O_RDWR|unix.O_CREAT), false, false},
		{"folder", "", open(dir, unix.O_RDONLY|unix.O_DIRECTORY), false, false},
		{"O_PATH", "", open("/dev/null", unix.O_PATH), false, false},
		{"terminal", "", master, false, false},
		{"socket", "", sock, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			relay, err := mustRelay(c.f, "stdin", c.user)
			if (err == nil) != c.ok || relay != c.relay {
				t.Errorf("relay %v, error %v; want relay %v, allowed %v", relay, err, c.relay, c.ok)
			}
			var ae *api.Error
			if err != nil && (!errors.As(err, &ae) || ae.Hint == "" || ae.Field == "") {
				t.Errorf("%v: no typed error with hint and field", err)
			}
		})
	}
}

func TestCheckSource(t *testing.T) {
	h := &Host{Forbidden: []string{"/home/u/.local/share/hutch", "/run/hutch/hutchd.sock"}}
	for path, ok := range map[string]bool{
		"/home/u/project":                   true,
		"/home/u/.local/share/hutch2":       true,
		"/run/hutch":                        false, // holds the socket
		"/home/u":                           false, // holds the state
		"/":                                 false,
		"/home/u/.local/share/hutch":        false,
		"/home/u/.local/share/hutch/images": false,
		"/home/u/x/../.local/share/hutch/a": false,
	} {
		if err := h.checkSource(path); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", path, err, ok)
		}
	}
}

// TestCheckSourceLinks: what is trusted is found by links, which may be others than when the daemon started, and by
// bind mounts; none of them may be in a folder that is mounted.
func TestCheckSourceLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"home/config", "dotfiles/hutch", "var/home/work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{Forbidden: []string{filepath.Join(dir, "home/config/hutch/config.yaml"), filepath.Join(dir, "h/state")}}
	check := func(name string, ok bool) {
		t.Helper()
		if err := h.checkSource(filepath.Join(dir, name)); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", name, err, ok)
		}
	}
	check("dotfiles", true)
	// while the daemon runs
	for name, to := range map[string]string{"home/config/hutch": "../../dotfiles/hutch", "h": "var/home"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	check("dotfiles", false)
	check("dotfiles/hutch", false)
	check("home/config", false)
	check("var/home/state", false)
	check("h/work", true) // beside the state, behind the same link
	check("var/home/work", true)
	for name, ok := range map[string]bool{"dotfiles": false, "home/config": false, "var/home/work": true,
		"var/home": false} {
		src, err := openPath(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.checkSame("/by/another/name", src); (err == nil) != ok {
			t.Errorf("%s by another name: %v, want allowed %v", name, err, ok)
		}
		_ = src.Close()
	}
}

func TestTransitions(t *testing.T) {
	s := &Sandbox{record: api.Sandbox{State: api.Creating, PID: 7}}
	if s.transition(api.Stopped, "") {
		t.Error("a sandbox was stopped while being created")
	}
	if !s.transition(api.Running, "") || !s.transition(api.Failed, "PID 1 ended") {
		t.Error("an allowed change was refused")
	}
	if s.transition(api.Running, "") {
		t.Error("a failed sandbox ran again")
	}
	if r := s.Record(); r.PID != 0 || r.Reason != "PID 1 ended" {
		t.Errorf("record of an ended sandbox: %+v", r)
	}
}
