package exectest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio/stdiotest"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Launcher is hutch-launch. What commands write it does not spool: a test writes to Output.
type Launcher struct {
	Fails   error // what Hold fails with
	NoNotes error // what Note fails with

	t     testing.TB
	mu    sync.Mutex // guards what follows
	held  map[string]launchapi.Exec
	notes map[string]json.RawMessage
	ends  map[string]json.RawMessage
	out   map[string][]*stdiotest.Source
}

func newLauncher(t testing.TB) *Launcher {
	return &Launcher{t: t, held: map[string]launchapi.Exec{}, notes: map[string]json.RawMessage{},
		ends: map[string]json.RawMessage{}, out: map[string][]*stdiotest.Source{}}
}

// Output is the far end of a stream of a command, 0 or 1.
func (l *Launcher) Output(id string, stream int) *stdiotest.Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out[id][stream]
}

// All are commands as the next hutchd gets them, but for what they have written.
func (l *Launcher) All(ids ...string) (all []launchapi.HeldExec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		e := launchapi.HeldExec{Exec: l.held[id]}
		e.Note, e.End = l.notes[id], l.ends[id]
		for range l.out[id] {
			_, st := stdiotest.New(l.t)
			e.Streams = append(e.Streams, st)
		}
		all = append(all, e)
	}
	return all
}

// Hold implements exec.Launcher.
func (l *Launcher) Hold(_ string, e launchapi.Exec, _ ...*os.File) (func() ([]launchapi.Stream, error), error) {
	if l.Fails != nil {
		return nil, l.Fails
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[e.ID] = e
	var streams []launchapi.Stream
	l.out[e.ID] = nil
	for _, role := range e.Roles {
		if role == launchapi.RoleSpool {
			src, st := stdiotest.New(l.t)
			l.out[e.ID], streams = append(l.out[e.ID], src), append(streams, st)
		}
	}
	return func() ([]launchapi.Stream, error) { return streams, nil }, nil
}

// Flush implements exec.Launcher.
func (l *Launcher) Flush(context.Context, string, string) ([]launchapi.Spooled, error) {
	return nil, nil
}

// Note implements exec.Launcher.
func (l *Launcher) Note(_, exec string, note json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes[exec] = note
	return l.NoNotes
}

// End implements exec.Launcher.
func (l *Launcher) End(_, exec string, end json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[exec] = end
	return nil
}

// Drop implements exec.Launcher.
func (l *Launcher) Drop(_, exec string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, exec)
	return nil
}

// Loosen implements exec.Launcher.
func (l *Launcher) Loosen(string, string) error { return nil }

// Cgroups are a list, and numbers.
type Cgroups struct {
	CPU     time.Duration // what is used, and grows by Step with each look
	Step    time.Duration
	OOM     uint64
	PIDs    uint64
	OnEvent func(c *Cgroups) // is called by each look at events

	mu     sync.Mutex // guards what follows, and all numbers
	Made   map[string]bool
	Killed []string
}

// Make implements exec.Cgroups.
func (c *Cgroups) Make(_, exec string, _ api.Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Made[exec] {
		return fs.ErrExist
	}
	c.Made[exec] = true
	return nil
}

// Reusable implements exec.Cgroups.
func (c *Cgroups) Reusable(string, string) bool { return true }

// Number implements exec.Cgroups.
func (c *Cgroups) Number(_, exec string) (n uint64) {
	for _, b := range []byte(exec) {
		n = n*31 + uint64(b)
	}
	return n
}

// Usage implements exec.Cgroups.
func (c *Cgroups) Usage(string, string) (time.Duration, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.CPU += c.Step
	return c.CPU, 1 << 20, nil
}

// Kill implements exec.Cgroups.
func (c *Cgroups) Kill(_ context.Context, _, exec string) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Killed = append(c.Killed, exec)
	return nil, nil
}

// Retire implements exec.Cgroups.
func (c *Cgroups) Retire(_, exec string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.Made, exec)
}

// Stats implements exec.Cgroups.
func (c *Cgroups) Stats(string) (api.Stats, error) { return api.Stats{}, errors.ErrUnsupported }

// Events implements exec.Cgroups.
func (c *Cgroups) Events(string) (oom, pids uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oom, pids = c.OOM, c.PIDs
	if c.OnEvent != nil {
		c.OnEvent(c)
	}
	return oom, pids
}

// Log are the events and the audit log.
type Log struct {
	mu     sync.Mutex
	events []Event
	notes  []audit.Entry
}

// Event is one as it was sent.
type Event struct {
	Kind api.EventKind
	Exec string
	Data any
}

// Emit implements exec.Events.
func (l *Log) Emit(kind api.EventKind, _, exec string, data any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, Event{kind, exec, data})
}

// Note implements exec.Audit.
func (l *Log) Note(e audit.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, e)
}

// Wants implements exec.Audit.
func (l *Log) Wants(api.AuditKind) bool { return true }

// Full implements exec.Audit.
func (l *Log) Full() bool { return true }

// Events are those of a kind.
func (l *Log) Events(kind api.EventKind) (list []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// Notes are the records of a kind.
func (l *Log) Notes(kind api.AuditKind) (list []audit.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.notes {
		if e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}
