package sandbox

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// bare is a Manager with one sandbox, of which there is nothing but the record.
func bare(t *testing.T, record api.Sandbox, sp api.Spec) (*Manager, *Sandbox) {
	t.Helper()
	record.ID = "sb_a"
	log := slog.New(slog.DiscardHandler)
	st, err := shelf.Open(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	m := NewManager(Config{Dir: t.TempDir(), Images: noPins{}, Shelf: st, Logger: log})
	s := &Sandbox{id: record.ID, dir: filepath.Join(m.cfg.Dir, record.ID), spec: sp, record: record, root: &spec.Root{},
		gate: admission.NewGate(), turn: admission.NewTurn(), execs: exec.NewSet(exec.ClockState{}),
		exited: make(chan struct{})}
	s.meter = m.Meters.New(meterBox{m, s})
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.byID[s.id] = s
	t.Cleanup(func() { m.trim.Stop() })
	return m, s
}

// noPins are images of which none is pinned.
type noPins struct{ ImageSource }

func (noPins) Unpin(string) error { return nil }

// TestOwnerOfStopped: a sandbox that is being stopped loses its owner while connections end, others ask for its scope,
// and it is looked at.
func TestOwnerOfStopped(t *testing.T) {
	m, s := bare(t, api.Sandbox{State: api.Stopped}, api.Spec{Owner: api.OwnerConnection})
	s.conn, s.destroy = 1, func() error { return nil }
	close(s.exited)
	var all sync.WaitGroup
	all.Go(func() {
		if err := (keepBox{m, s}).keepFiles("stopped"); err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			t.Error(err)
		}
	})
	all.Go(func() { m.Disconnected(1) })
	all.Go(func() { _, _ = workspace.HandOver(s.specNow(), nil) })
	all.Go(func() { _ = s.asked() })
	all.Wait()
	m.wg.Wait()
	if s.spec.Owner != "" {
		t.Errorf("owner %q", s.spec.Owner)
	}
}

// TestClocksOfAdopted: the clocks of a sandbox that was taken over start while others look at it, stop them and set
// them anew, and its claim ends with it.
func TestClocksOfAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(time.Hour)
		m, s := bare(t, api.Sandbox{State: api.Running, Expires: &end}, api.Spec{Owner: api.OwnerConnection, IdleS: 60})
		s.orphaned = true
		var all sync.WaitGroup
		all.Go(func() { (&adoption{m: m, s: s}).startClocks() })
		all.Go(func() { s.setTTL(m, time.Now().Add(time.Minute)) })
		all.Go(func() { s.transition(api.Stopped, "killed") })
		all.Go(func() { s.quiet() })
		all.Wait()
		s.quiet() // whoever was last
		testenv.Elapse(2 * time.Hour)
		if m.byID[s.id] != s || m.Removing() > 0 {
			t.Error("a sandbox whose clocks were stopped is removed")
		}
	})
}
