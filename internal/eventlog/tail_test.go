package eventlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestTail: what was written last is read without the file, by whoever has read all before, from any record of it on.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	l.say(0)
	if err := l.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	near, far := l.Follow(2, true, nil), l.Follow(1, true, nil)
	at := l.Follow(2, true, nil)
	segment := filepath.Join(dir, segmentName(1))
	for i := range 3 {
		l.say(i + 1)
	}
	if err := errors.Join(l.Sync(t.Context()), os.Rename(segment, segment+".away")); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	tail := bytes.Count(l.tail, []byte{'\n'}) // records of the last write
	l.mu.Unlock()
	if tail < 1 {
		t.Fatal("nothing is kept")
	}
	if events, err := far.Read(10); len(events) > 0 || err != nil {
		t.Errorf("a reader that is behind: %+v, %v", events, err)
	}
	if err := os.Rename(segment+".away", segment); err != nil {
		t.Fatal(err)
	}
	read(t, at, 3-tail)
	if err := os.Remove(segment); err != nil {
		t.Fatal(err)
	}
	for i := range tail { // one at a time
		events, err := at.Read(1)
		if err != nil || len(events) != 1 || events[0].Seq != int64(5-tail+i) {
			t.Errorf("%+v, %v; the last %d are kept", events, err, tail)
		}
	}
	if tail == 3 {
		if events, err := near.Read(10); len(events) != 3 || err != nil {
			t.Errorf("%+v, %v", events, err)
		}
	}
}
