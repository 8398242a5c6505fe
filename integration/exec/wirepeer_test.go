package exec_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestWirePeer: the socket is the owner's.
func TestWirePeer(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Inside(t, "true")
	st, err := os.Stat(w.Socket())
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", st.Mode(), err)
	}
	for _, dir := range []string{w.Root(), w.Root() + "/data"} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil || st.Mode&0o077 != 0 {
			t.Errorf("%s has mode %o, %v", dir, st.Mode, err)
		}
	}
	// A sandbox that got hold of the socket is not the owner, though it has the uid.
	dir := w.Sub(t, "shared")
	if err := os.Link(w.Socket(), dir+"/sock"); err != nil {
		t.Fatal(err)
	}
	got := w.Python(t, `
import socket
for path in ("/tmp/own", "/workspace/sock"):
    if path == "/tmp/own":
        l = socket.socket(socket.AF_UNIX); l.bind(path); l.listen()
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path)
        if path == "/tmp/own":
            peer = l.accept()[0]; peer.send(b"{}")
        s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"system.info","params":{}}\n')
        print("answer", len(s.recv(100)) > 0)
    except OSError as e: print("refused")
`, "--workspace", dir)
	if got != "answer True\nanswer False" && got != "answer True\nrefused" {
		t.Errorf("got %q", got)
	}
}
