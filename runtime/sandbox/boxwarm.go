package sandbox

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/warm"
)

// aheadHost is the Manager as package warm has it launch sandboxes ahead.
type aheadHost struct{ m *Manager }

func (h aheadHost) Ready() int { return h.m.settings.Load().Ready }

func (h aheadHost) Alive(g *generic) bool { return lives(h.m.cfg.Kernel, g.pidfd) }

// lives reports whether the PID 1 of a pidfd has not ended.
func lives(k Kernel, pidfd *os.File) bool {
	exited, err := k.Exited(pidfd)
	return err == nil && !exited
}

// pooled is what a sandbox is to a pool.
type pooled int

const (
	notPooled     pooled = iota
	waitsInPool          // or is made for that; nobody has acquired it
	takenFromPool        // it was acquired
)

// waits reports whether the sandbox is one that waits in a pool, or will.
func (s *Sandbox) waits() bool { return s.pooled == waitsInPool }

// leavePool says that s has ended, and reports whether it waited in a pool.
func leavePool(pools *warm.Pools, s *Sandbox) bool {
	pool := s.Record().Pool
	return pool != "" && pools.Lost(pool, s.id)
}

func newPools(m *Manager) *warm.Pools {
	return warm.NewPools(m.ctx, warm.Config{
		Sandboxes: poolsHost{m}, File: filepath.Join(filepath.Dir(m.cfg.Dir), "pools.json"), Write: writeJSON,
		Owner: m.cfg.Owner, CPUs: m.cfg.Host.CPUs, Closed: ErrClosed, Logger: m.cfg.Logger,
	})
}

// adopt takes over the pools of a hutchd before, whose sandboxes have been taken over, and begins with those of
// the configuration.
func (h poolsHost) adopt() {
	m := h.m
	var waiting []warm.Sandbox
	m.mu.Lock()
	for _, s := range m.byID {
		switch r := s.Record(); {
		case r.State == api.Waiting:
			s.pooled = waitsInPool
			waiting = append(waiting, poolsBox{m, s})
		case r.Pool != "":
			s.pooled = takenFromPool
		}
	}
	m.mu.Unlock()
	m.Pools.Adopt(waiting)
	m.Pools.Configure(m.settings.Load().Pools)
}

// poolsHost is the Manager as warm.Pools uses it.
type poolsHost struct{ m *Manager }

func (h poolsHost) Make(ctx context.Context, pool string, sp api.Spec, user uint32,
	progress func(api.Progress)) (warm.Sandbox, error) {
	r, err := h.m.Create(ctx, CreateRequest{Spec: sp, User: user, Progress: progress, pool: pool})
	if err != nil {
		return nil, err
	}
	return h.Find(r.ID)
}

func (h poolsHost) Find(ref string) (warm.Sandbox, error) {
	s, err := h.m.find(ref)
	return poolsBox{h.m, s}, err
}

func (h poolsHost) InUse() map[string]int {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	n := map[string]int{}
	for _, s := range h.m.byID {
		if s.pooled == takenFromPool {
			n[s.Record().Pool]++
		}
	}
	return n
}

func (h poolsHost) Remove(ctx context.Context, ref string) (api.KillResult, error) {
	return h.m.Remove(ctx, ref)
}

func (h poolsHost) Enter(conn uint64) (leave func() (gone bool)) {
	return h.m.enter(conn)
}

// poolsBox is a sandbox as warm.Pools uses it.
type poolsBox struct {
	m *Manager
	s *Sandbox
}

func (b poolsBox) ID() string          { return b.s.id }
func (b poolsBox) Record() api.Sandbox { return b.s.Record() }
func (b poolsBox) Alive() bool         { return lives(b.m.cfg.Kernel, b.s.pidfd) }
func (b poolsBox) Settle() bool        { return b.s.transition(api.Waiting, "") }
func (b poolsBox) Remove(why string)   { b.m.removeLater(b.s, why) }

func (b poolsBox) Assign(conn uint64, a *api.AcquireParams) error {
	m, s := b.m, b.s
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byID[s.id] != s { // the name would be nobody's
		return warm.ErrEnded
	}
	if other, taken := m.byName[a.Name]; taken && a.Name != "" {
		return api.Errorf(api.AlreadyExists, "the name %q belongs to sandbox %s", a.Name, other.id).
			WithField("name").WithHint("choose another name, or remove it: hutch rm %s", a.Name)
	}
	if a.Name != "" {
		m.byName[a.Name] = s
	}
	s.pooled = takenFromPool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name, s.record.Name, s.conn, s.spec.Owner = a.Name, a.Name, conn, a.Owner
	if len(a.Labels) > 0 {
		s.record.Labels = maps.Clone(s.record.Labels)
		if s.record.Labels == nil {
			s.record.Labels = map[string]string{}
		}
		maps.Copy(s.record.Labels, a.Labels)
	}
	return nil
}

func (b poolsBox) Begin(ctx context.Context, a *api.AcquireParams) (api.Sandbox, error) {
	m, s := b.m, b.s
	if ttl := s.spec.TTLS; ttl > 0 {
		s.setTTL(m, time.Now().Add(seconds(ttl)))
	}
	if !s.transition(api.Running, "") {
		m.removeLater(s, "it ended while it waited")
		return api.Sandbox{}, warm.ErrEnded
	}
	m.audit(ctx, s, "", api.AuditAcquired, api.AuditAcquisition{Pool: a.Pool, Name: a.Name}, 0)
	s.rearmIdle(m)
	if err := s.save(); err != nil { // the next hutchd would take it for one that waits
		if s.state() != api.Running { // its folder goes, too
			err = warm.ErrEnded
		}
		m.removeLater(s, "it could not be handed over")
		return api.Sandbox{}, err
	}
	return s.Record(), nil
}
