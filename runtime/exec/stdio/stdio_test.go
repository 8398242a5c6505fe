package stdio

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
