package files

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// newClient serves a worker in this process.
func newClient(t testing.TB) *filesapi.Client {
	t.Helper()
	ours, theirs, err := packet.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ch, err := theirs.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{ch: ch, calls: map[uint64]*call{}}
	done := make(chan error, 1)
	go func() { done <- w.serve() }()
	c := filesapi.NewClient(ours)
	t.Cleanup(func() {
		_ = c.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = theirs.Close()
	})
	return c
}

// op calls an operation with arguments as JSON.
func op(t testing.TB, c *filesapi.Client, name, path string, args any) (*filesapi.Reply, []byte, error) {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return c.Call(t.Context(), filesapi.Request{Op: name, Path: path}, data, filesapi.MaxList)
}

// put makes a file in dir.
func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// get reads a file.
func get(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
