package sandbox

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// noting is a launcher that takes notes, or fails at it.
type noting struct {
	Launcher
	err error
}

func (n noting) Note(string, string, json.RawMessage) error { return n.err }

// TestShellWithoutNote: a shell that the next hutchd would not know is killed, since its caller does not get it; one
// with a note goes on.
func TestShellWithoutNote(t *testing.T) {
	full := errors.New("no room for a note")
	for _, fails := range []error{nil, full} {
		m, s := bare(t, api.Sandbox{State: api.Running}, api.Spec{})
		m.cfg.Launcher = noting{err: fails}
		r := &running{id: "ex_a", s: s, done: make(chan struct{})}
		var killed error
		r.stop = func(cause error) { killed = cause; close(r.done) }
		if err := m.noteShell(newShell(r, nil)); !errors.Is(err, fails) {
			t.Errorf("%v, want %v", err, fails)
		}
		if (fails != nil) != errors.Is(killed, errKilled) {
			t.Errorf("the note: %v, and the shell was stopped with %v", fails, killed)
		}
	}
}
