package eventlog

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// FuzzRecord: what is written is read, and nothing else panics.
func FuzzRecord(f *testing.F) {
	rec, _ := appendRecord(nil, &api.Event{Seq: 1, Kind: "k", Data: json.RawMessage(`{"a":"b"}`)})
	f.Add(rec[:len(rec)-1])
	f.Add([]byte("00000000 {}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		var e api.Event
		var err error
		cost.Input(t, line, func(line []byte) { e, err = parseRecord(line) })
		if err != nil {
			return
		}
		again, err := appendRecord(nil, &e)
		if err != nil {
			return // longer than it was, escaped
		}
		if back, err := parseRecord(again[:len(again)-1]); err != nil || back.Seq != e.Seq || back.Kind != e.Kind {
			t.Errorf("%q became %q", line, again)
		}
	})
}

// FuzzOpen: whatever a segment holds, the log opens and goes on, and readers see
// ascending numbers.
//
// Rate: 500/s, because each input is a folder with a log that is opened, written, followed and closed.
func FuzzOpen(f *testing.F) {
	var good []byte
	for i := range int64(3) {
		good, _ = appendRecord(good, &api.Event{Seq: i + 1, Kind: "k"})
	}
	f.Add(good, []byte("torn"))
	f.Add([]byte("\n\n\x00"), good)
	top := f.TempDir()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		dir := filepath.Join(top, "log")
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{segmentName(1): a, segmentName(3): b, "7.log": a, "x": b} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var l *Log
		cost.Once(t, 2*(len(a)+len(b)), func() { l = open(t, dir, Options{}) })
		_, next := l.Range()
		l.say(7)
		c := l.Follow(1, true, nil)
		for last := int64(0); last < next; {
			for _, e := range read(t, c, 1) {
				last = e.Seq
				if e.Seq == next && e.Exec != "ex_7" {
					t.Errorf("%+v", e)
				}
			}
		}
		l.stop(t)
	})
}
