package warm

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// makeOne makes a sandbox that waits, and hands it out or on. It has been counted as one that is being made.
func (p *pool) makeOne(ctx context.Context, progress func(api.Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	p.ps.mu.Lock()
	age := p.age
	p.ps.unlock()
	s, err := p.ps.cfg.Sandboxes.Make(ctx, p.spec.Name, p.spec.Sandbox, p.user, progress)
	// also in a pool that is gone: what is still being created is not killed
	if err == nil && !s.Settle() {
		s.Remove("it ended before anybody asked for it")
		err = api.Errorf(api.Internal, "PID 1 of sandbox %s has ended", s.ID()).WithHint("the daemon's log says more")
	}
	p.ps.mu.Lock()
	defer p.ps.unlock()
	p.making--
	switch {
	case err != nil:
		p.failed = err
		p.waiters.fail(err)
		p.later(p.backoff.next())
		return err
	case p.closed:
		p.ps.remove("its pool was removed", s)
		return errPoolGone(p.spec.Name)
	}
	p.failed, p.backoff = nil, backoff{}
	if age == p.age {
		p.put(s)
	} else {
		p.ps.remove("its template has changed", s)
	}
	p.fill()
	return nil
}

// put gives s to the first who waits, or keeps it; Pools.mu is held.
func (p *pool) put(s Sandbox) {
	if p.waiters.hand(s) {
		return
	}
	p.ready = append(p.ready, s)
	p.ps.entered = append(p.ps.entered, entered{p.spec.Name, s})
}

// fill has one more made where one is missing: one at a time, for making one takes a core, or as many at once as there
// are cores for those who wait. Pools.mu is held.
func (p *pool) fill() {
	if p.closed || p.ps.closed || !p.asked && !p.spec.Ahead() {
		return
	}
	// Those that wait may be more than the pool; they are made as their turn comes.
	for p.making < max(1, min(len(p.waiters), p.ps.cfg.CPUs)) &&
		len(p.ready)+p.making < p.spec.Size+len(p.waiters) {
		p.making++
		p.ps.wg.Go(func() {
			if err := p.makeOne(p.ctx, func(api.Progress) {}); err != nil && context.Cause(p.ctx) == nil {
				p.ps.cfg.Logger.Warn("make a sandbox of a pool", "pool", p.spec.Name, "err", err)
			}
		})
	}
}
