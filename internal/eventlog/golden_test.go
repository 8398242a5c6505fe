package eventlog

import (
	"os"
	"testing"
)

// TestGolden: the events that the build of 3f74611 has written are read, each of them.
func TestGolden(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/golden")); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	events, err := l.Follow(1, false, nil).Read(1000)
	if err != nil || len(events) < 10 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		if e.Seq != int64(i)+1 || e.Kind == "" || e.Time.IsZero() {
			t.Errorf("event %d: %+v", i+1, e)
		}
	}
}
