package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history"
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

func (b historyBox) Enter(ctx context.Context) (leave func(), err error) {
	return b.m.Pauses.Enter(ctx, pauseBox{b.m, b.s})
}

func (b historyBox) Stop(ctx context.Context, grace time.Duration, reason string) (history.Sandbox, api.Ended, error) {
	s, ended, err := b.stopAndKeep(ctx, grace, reason)
	return historyBox{keepBox{b.m, s}}, ended, err
}

func (b historyBox) Start(ctx context.Context, sp api.Spec, conn uint64, fds packet.Taker) (api.Sandbox, error) {
	return b.start(ctx, CreateRequest{Spec: sp, FDs: fds, User: b.s.user, Conn: conn})
}

func (b historyBox) Quiesce(ctx context.Context, use func(standing []int) error) (err error) {
	return b.m.Pauses.Quiesce(ctx, pauseBox{b.m, b.s}, use)
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
		if sc := m.scopeOf(now); sc != nil && now.spec.Scope.Kind == api.ScopeSession && len(sc.users) == 0 &&
			!now.orphaned {
			m.removeLocked(now, sessionEnded)
		} else if gone && owner == api.OwnerConnection {
			m.removeLocked(now, "its owner's connection ended")
		}
		return nil
	}
}
