package sandbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// A pool holds sandboxes that are made alike before anybody asks: whole ones, in the state
// waiting, with whatever image, network and profile, where a generic one (generic.go) fits only what asks for
// nothing special. Acquire turns one into somebody's; it is used by nobody else, ever: released, it is destroyed.
type pool struct {
	m *Manager

	// Manager.mu guards what follows.
	spec       api.PoolSpec
	user       uint32 // whose quotas count
	configured bool
	ready      []*Sandbox
	waiters    []chan handed // of acquires, first come first served; each has room for one
	making     int
	asked      bool // so that a pool that is not prewarmed is filled, too
	closed     bool
	age        int           // how often its template has become another one
	failed     error         // of the last attempt
	backoff    time.Duration // before the next, after a failure
	timer      *time.Timer   // of the next attempt
	cancel     context.CancelCauseFunc
	ctx        context.Context
}

// handed is what an acquire that waits is given.
type handed struct {
	s   *Sandbox
	err error
}

// The pauses before a pool that cannot be filled tries again.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// PoolRequest is a validated request for a pool.
type PoolRequest struct {
	Spec     api.PoolSpec
	User     uint32
	Progress func(api.Progress) // of the first sandbox; never nil
}

// CreatePool makes a pool. Where it is to be filled ahead, it returns when the first sandbox waits,
// so that who asks for what cannot be made hears of it.
func (m *Manager) CreatePool(ctx context.Context, req PoolRequest) (api.Pool, error) {
	if err := req.Spec.Validate(); err != nil {
		return api.Pool{}, err
	}
	p := m.newPool(req.Spec, req.User)
	m.mu.Lock()
	err := m.addPool(p)
	m.mu.Unlock()
	if err != nil {
		return api.Pool{}, err
	}
	if req.Spec.Ahead() {
		p.locked(func() { p.making++ })
		s, err := p.makeOne(ctx, req.Progress)
		if err = p.made(s, err); err != nil {
			m.mu.Lock()
			p.close(m)
			m.mu.Unlock()
			return api.Pool{}, err
		}
	}
	m.savePools()
	return m.Pool(req.Spec.Name)
}

func (m *Manager) newPool(spec api.PoolSpec, user uint32) *pool {
	p := &pool{m: m, spec: spec, user: user, backoff: minBackoff}
	p.ctx, p.cancel = context.WithCancelCause(m.ctx)
	return p
}

// addPool lists it; mu is held.
func (m *Manager) addPool(p *pool) error {
	if m.closed {
		return ErrClosed
	}
	if _, taken := m.pools[p.spec.Name]; taken {
		return api.Errorf(api.AlreadyExists, "there is a pool %q", p.spec.Name).WithField("name").
			WithHint("choose another name, or remove it: hutch pool rm %s", p.spec.Name)
	}
	m.pools[p.spec.Name] = p
	return nil
}

// locked calls f with Manager.mu held.
func (p *pool) locked(f func()) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	f()
}

func errPoolGone(name string) error {
	return api.Errorf(api.NotFound, "no pool %q", name).WithHint("hutch pool ls lists the pools")
}

// poolOf is the pool of that name; mu is held.
func (m *Manager) poolOf(name string) (*pool, error) {
	if p := m.pools[name]; p != nil {
		return p, nil
	}
	if m.closed {
		return nil, ErrClosed // the next daemon may have it
	}
	return nil, errPoolGone(name)
}

// Acquire takes a sandbox out of a pool: nil when none is ready within the time that p says. It is a
// sandbox like any other from then on.
func (m *Manager) Acquire(ctx context.Context, by Caller, a api.AcquireParams) (*api.Sandbox, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.creating[by.Conn]++
	m.mu.Unlock()
	r, err := m.acquire(ctx, &a, by.Conn)
	for range acquireTries {
		if !errors.Is(err, errEnded) {
			break
		}
		r, err = m.acquire(ctx, &a, by.Conn)
	}
	m.mu.Lock()
	gone := m.doneCreating(by.Conn)
	m.mu.Unlock()
	if r != nil && gone { // nobody hears of it
		if s, err := m.find(r.ID); err == nil {
			m.removeLater(s, "the connection that acquired it ended")
		}
	}
	return r, err
}

// acquireTries is how often an acquire is repeated that got a sandbox which died at that moment.
const acquireTries = 5

// errEnded is why another sandbox is tried.
var errEnded = errors.New("has just ended")

func errEndedIn(s *Sandbox, pool string) error {
	return api.Errorf(api.Unavailable, "sandbox %s of pool %q: %w", s.id, pool, errEnded).WithHint("try again")
}

func (m *Manager) acquire(ctx context.Context, a *api.AcquireParams, conn uint64) (*api.Sandbox, error) {
	late := time.NewTimer(time.Duration(a.WaitMS * float64(time.Millisecond)))
	defer late.Stop()
	m.mu.Lock()
	p, err := m.poolOf(a.Pool)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	p.asked = true
	for len(p.ready) > 0 {
		s := p.ready[len(p.ready)-1] // the one whose memory is warm
		p.ready = p.ready[:len(p.ready)-1]
		if exited, err := m.cfg.Kernel.Exited(s.pidfd); err == nil && !exited {
			p.later(refillAfter)
			m.mu.Unlock()
			return m.hand(ctx, p, s, a, conn)
		}
		m.removeLocked(s, "it ended while it waited")
	}
	if a.WaitMS == 0 {
		p.fill()
		m.mu.Unlock()
		return nil, nil
	}
	turn := make(chan handed, 1)
	p.waiters = append(p.waiters, turn)
	p.fill()
	m.mu.Unlock()
	select {
	case h := <-turn:
		if h.err != nil {
			return nil, h.err
		}
		return m.hand(ctx, p, h.s, a, conn)
	case <-late.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(p.waiters, turn); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
		return nil, err
	}
	// It came at the same moment.
	if h := <-turn; h.s != nil {
		m.giveBack(p, h.s)
	}
	return nil, err
}

// giveBack puts back one that nobody has had; mu is held.
func (m *Manager) giveBack(p *pool, s *Sandbox) {
	if p.closed {
		m.removeLocked(s, "its pool was removed")
		return
	}
	p.put(s)
}

// hand makes s, which was taken out of p, the caller's.
func (m *Manager) hand(ctx context.Context, p *pool, s *Sandbox, a *api.AcquireParams, conn uint64) (*api.Sandbox,
	error) {
	m.mu.Lock()
	if err := context.Cause(ctx); err != nil {
		m.giveBack(p, s)
		m.mu.Unlock()
		return nil, err
	}
	if other, taken := m.byName[a.Name]; taken && a.Name != "" {
		m.giveBack(p, s)
		m.mu.Unlock()
		return nil, api.Errorf(api.AlreadyExists, "the name %q belongs to sandbox %s", a.Name, other.id).
			WithField("name").WithHint("choose another name, or remove it: hutch rm %s", a.Name)
	}
	if a.Name != "" {
		m.byName[a.Name] = s
	}
	s.taken = true
	s.mu.Lock()
	s.name, s.record.Name, s.conn, s.spec.Owner = a.Name, a.Name, conn, a.Owner
	if len(a.Labels) > 0 {
		s.record.Labels = maps.Clone(s.record.Labels)
		if s.record.Labels == nil {
			s.record.Labels = map[string]string{}
		}
		maps.Copy(s.record.Labels, a.Labels)
	}
	s.mu.Unlock()
	m.mu.Unlock()
	if ttl := s.spec.TTLS; ttl > 0 {
		s.setTTL(m, time.Now().Add(seconds(ttl)))
	}
	if !s.transition(api.Running, "") {
		m.removeLater(s, "it ended while it waited")
		return nil, errEndedIn(s, a.Pool)
	}
	m.audit(ctx, s, "", api.AuditAcquired, api.AuditAcquisition{Pool: a.Pool, Name: a.Name}, 0)
	s.rearmIdle(m)
	if err := s.save(); err != nil { // the next hutchd would take it for one that waits
		if st := s.state(); st != api.Running { // its folder goes, too
			err = errEndedIn(s, a.Pool)
		}
		m.removeLater(s, "it could not be handed over")
		return nil, err
	}
	r := s.Record()
	return &r, nil
}

// Release destroys a sandbox that was acquired, and is done when nothing of it runs. Nothing is ever reset
// for somebody else.
func (m *Manager) Release(ctx context.Context, ref string) (api.KillResult, error) {
	s, err := m.find(ref)
	if err != nil {
		return api.KillResult{}, err
	}
	switch r := s.Record(); {
	case r.Pool == "":
		return api.KillResult{}, api.Errorf(api.FailedPrecondition, "sandbox %s is of no pool", s.id).
			WithHint("hutch rm -f %s removes it", s.id)
	case r.State == api.Waiting:
		return api.KillResult{},
			api.Errorf(api.FailedPrecondition, "sandbox %s waits in pool %q; nobody has acquired it", s.id, r.Pool).
				WithHint("pool.acquire takes one out of a pool")
	}
	return m.Remove(ctx, ref)
}

// Pool is how a pool is filled.
func (m *Manager) Pool(name string) (api.Pool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.poolOf(name)
	if err != nil {
		return api.Pool{}, err
	}
	return p.status(), nil
}

// Pools are all of them, by name.
func (m *Manager) Pools() []api.Pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]api.Pool, 0, len(m.pools))
	for _, p := range m.pools {
		list = append(list, p.status())
	}
	slices.SortFunc(list, func(a, b api.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// status is p's; mu is held.
func (p *pool) status() api.Pool {
	st := api.Pool{PoolSpec: p.spec, Available: len(p.ready), InUse: p.m.inUse(p.spec.Name), Configured: p.configured}
	st.Total = st.Available + st.InUse
	if p.failed != nil {
		st.Error = p.failed.Error()
	}
	return st
}

// inUse counts what was acquired from a pool; mu is held.
func (m *Manager) inUse(name string) int {
	n := 0
	for _, s := range m.byID {
		if s.taken && s.Record().Pool == name {
			n++
		}
	}
	return n
}

// ResizePool changes how many wait. What is too many is removed.
func (m *Manager) ResizePool(name string, size int) (api.Pool, error) {
	if err := api.CheckPoolSize(size); err != nil {
		return api.Pool{}, err
	}
	m.mu.Lock()
	p, err := m.poolOf(name)
	if err != nil {
		m.mu.Unlock()
		return api.Pool{}, err
	}
	p.resize(size)
	st := p.status()
	m.mu.Unlock()
	m.savePools()
	return st, nil
}

// resize with mu held.
func (p *pool) resize(size int) {
	p.spec.Size = size
	for len(p.ready) > size {
		s := p.ready[0]
		p.ready = p.ready[1:]
		p.m.removeLocked(s, "its pool became smaller")
	}
	p.fill()
}

// RemovePool removes a pool with what waits; what was acquired goes on until it is released.
func (m *Manager) RemovePool(name string) (api.PoolRemoved, error) {
	m.mu.Lock()
	p, err := m.poolOf(name)
	if err != nil {
		m.mu.Unlock()
		return api.PoolRemoved{}, err
	}
	r := api.PoolRemoved{InUse: m.inUse(name), Removed: p.close(m)}
	m.mu.Unlock()
	m.savePools()
	return r, nil
}
