package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// historyHost is the Manager as package history uses it.
type historyHost struct{ m *Manager }

func (h historyHost) Find(ref string) (history.Sandbox, error) {
	s, err := h.m.find(ref)
	return historyBox{keepBox{h.m, s}}, err
}

func (h historyHost) Turn(ctx context.Context, ref string) (history.Sandbox, func(), error) {
	s, done, err := h.m.takeTurn(ctx, ref)
	return historyBox{keepBox{h.m, s}}, done, err
}

// historyBox is a sandbox as package history uses it.
type historyBox struct{ keepBox }

func (b historyBox) Spec() api.Spec            { return b.s.specNow() }
func (b historyBox) Record() api.Sandbox       { return b.s.Record() }
func (b historyBox) Checkpoints() *history.Set { return &b.s.history }

func (b historyBox) Enter(ctx context.Context) (leave func(), err error) { return b.m.enter(ctx, b.s) }

func (b historyBox) Stop(ctx context.Context, grace time.Duration, reason string) (history.Sandbox, api.Ended, error) {
	s, ended, err := b.m.stopAndKeep(ctx, b.s, grace, reason)
	return historyBox{keepBox{b.m, s}}, ended, err
}

func (b historyBox) Start(ctx context.Context, sp api.Spec, conn uint64, fds packet.Taker) (api.Sandbox, error) {
	return b.m.startStopped(ctx, b.s, CreateRequest{Spec: sp, FDs: fds, User: b.s.user, Conn: conn})
}

// Quiesce takes milliseconds: unlike still it tells nobody, and leaves files workers alone. Nothing is stopped where
// nothing but PID 1 and workers is there, which write when they are asked to. PID 1, which moves folders for commands
// and for workers, finishes the one that it moves before.
func (b historyBox) Quiesce(ctx context.Context, use func(standing []int) error) (err error) {
	m, s := b.m, b.s
	done, err := s.admission.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	switch s.state() {
	case api.Stopped, api.Failed:
		return use(nil)
	case api.Paused:
		return use(procs.IDs(s.Record().PID))
	case api.Running:
	default:
		return s.mustRun()
	}
	patient, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	defer s.openAdmission()
	if err := s.closeAdmission(patient); err != nil {
		return withCause(ctx, err)
	}
	below, known := procs.Descendants(s.Record().PID)
	if known && len(below) <= s.files.Count() {
		return s.moves().While(patient, func() error { return use(nil) })
	}
	// On record before anything stands still: the next hutchd then has it paused, and whoever uses it resumes it.
	s.execs.Clock.Stop(time.Now())
	s.setPause(&api.Pause{Since: time.Now().UTC().Truncate(time.Millisecond), By: s.pauseMeans()})
	err = s.saveAs(api.Paused)
	if err == nil {
		err = m.freeze(patient, s)
	}
	if err == nil {
		if below, known = procs.Descendants(s.Record().PID); !known {
			below = procs.IDs(s.Record().PID)
		}
		err = use(below)
	}
	terr := m.thaw(s)
	s.execs.Clock.GoOn(time.Now())
	s.setPause(nil)
	m.saveEnd(s)
	if err == nil && terr != nil && s.state() == api.Running {
		err = api.Errorf(api.Internal, "let sandbox %s go on: %w", s.id, terr).
			WithHint("hutch resume %s, or remove it: hutch rm %s", s.id, s.id)
	}
	return err
}

func (b historyBox) HoldOwner() (owner string, conn uint64, back func() error) {
	m, s := b.m, b.s
	m.mu.Lock()
	defer m.mu.Unlock()
	id, orphaned := s.id, s.orphaned
	owner, conn = s.spec.Owner, s.conn
	m.creating[conn]++ // so that the end of the connection is noted
	return owner, conn, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		gone := m.doneCreating(conn)
		now := m.byID[id]
		if now == nil {
			return nil
		}
		now.orphaned = now.orphaned || orphaned && !gone
		if sc := now.spec.Scope; sc != nil && sc.Kind == api.ScopeSession && len(m.scopeOf(keyOf(now.user, *sc)).
			users) == 0 && !now.orphaned {
			m.removeLocked(now, "the last connection of its session ended")
		} else if gone && owner == api.OwnerConnection {
			m.removeLocked(now, "its owner's connection ended")
		}
		return nil
	}
}
