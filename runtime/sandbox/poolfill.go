package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// makeOne makes a sandbox that waits. making has been counted.
func (p *pool) makeOne(ctx context.Context, progress func(api.Progress)) (*Sandbox, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	age := 0
	p.locked(func() { age = p.age })
	r, err := p.m.Create(ctx, CreateRequest{Spec: p.spec.Sandbox, User: p.user, Progress: progress, pool: p})
	if err != nil {
		return nil, err
	}
	s, err := p.m.find(r.ID)
	if err == nil {
		s.poolAge = age
	}
	return s, err
}

// made counts what makeOne returned, and hands it out or on.
func (p *pool) made(s *Sandbox, err error) error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.making--
	// also in a pool that is gone: what is still being created is not killed
	if err == nil && !s.transition(api.Waiting, "") {
		p.m.removeLocked(s, "it ended before anybody asked for it")
		err = api.Errorf(api.Internal, "PID 1 of sandbox %s has ended", s.id).WithHint("the daemon's log says more")
	}
	switch {
	case err != nil:
		p.failed = err
		for _, w := range p.waiters {
			w <- handed{err: err}
		}
		p.waiters = nil
		if !p.closed {
			p.later(p.backoff)
			p.backoff = min(2*p.backoff, maxBackoff)
		}
		return err
	case p.closed:
		p.m.removeLocked(s, "its pool was removed")
		return errPoolGone(p.spec.Name)
	}
	p.failed, p.backoff = nil, minBackoff
	if s.poolAge != p.age {
		p.m.removeLocked(s, "its template has changed")
		p.fill()
		return nil
	}
	p.put(s)
	p.fill()
	return nil
}

// put gives s to the first who waits, or keeps it; mu is held.
func (p *pool) put(s *Sandbox) {
	if len(p.waiters) > 0 {
		w := p.waiters[0]
		p.waiters = p.waiters[1:]
		w <- handed{s: s}
		return
	}
	p.ready = append(p.ready, s)
}

// fill has one more made where one is missing: one at a time, for making one takes a core, or as many
// at once as there are cores for those who wait. mu is held.
func (p *pool) fill() {
	if p.closed || p.m.closed || !p.asked && !p.spec.Ahead() {
		return
	}
	// Those that wait may be more than the pool; they are made as their turn comes.
	for p.making < max(1, min(len(p.waiters), p.m.cfg.Host.CPUs)) && len(p.ready)+p.making < p.spec.Size+
		len(p.waiters) {
		p.making++
		p.m.wg.Go(func() {
			s, err := p.makeOne(p.ctx, func(api.Progress) {})
			if err = p.made(s, err); err != nil && context.Cause(p.ctx) == nil {
				p.m.cfg.Logger.Warn("make a sandbox of a pool", "pool", p.spec.Name, "err", err)
			}
		})
	}
}

// later calls fill after a while; mu is held.
func (p *pool) later(after time.Duration) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(after, func() { p.locked(p.fill) })
}

// lost has s replaced when it was one that waits, and says whether it was; mu is held.
func (p *pool) lost(s *Sandbox) bool {
	i := slices.Index(p.ready, s)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	if !p.closed {
		p.later(replaceAfter)
	}
	return true
}

// replace removes s, which has ended, when it waited in a pool.
func (m *Manager) replace(s *Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.pool.lost(s) {
		m.removeLocked(s, "it ended while it waited")
	}
}

// close ends the pool and removes what waits; it returns how many. mu is held.
func (p *pool) close(m *Manager) int {
	if p.closed {
		return 0
	}
	p.closed = true
	delete(m.pools, p.spec.Name)
	why := errPoolGone(p.spec.Name)
	if m.closed {
		why = ErrClosed // the next daemon may have it
	}
	p.cancel(why)
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, w := range p.waiters {
		w <- handed{err: why}
	}
	p.waiters = nil
	n := len(p.ready)
	for _, s := range p.ready {
		m.removeLocked(s, "its pool was removed")
	}
	p.ready = nil
	return n
}

// endPools ends all pools, as part of Close; mu is held. What waits is removed with everything else.
func (m *Manager) endPools() {
	for _, p := range m.pools {
		p.ready = nil
		p.close(m)
	}
}
