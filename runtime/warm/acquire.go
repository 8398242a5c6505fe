package warm

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// acquireTries is how often an acquire is repeated that got a sandbox which died at that moment.
const acquireTries = 5

// ErrEnded is why another sandbox is tried.
var ErrEnded = errors.New("has just ended")

// Acquire takes a sandbox out of a pool: nil when none is ready within the time that a says. It is a sandbox like any
// other from then on. conn is the connection that asks.
func (ps *Pools) Acquire(ctx context.Context, conn uint64, a api.AcquireParams) (*api.Sandbox, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	leave := ps.cfg.Sandboxes.Enter(conn)
	r, err := ps.acquire(ctx, &a, conn)
	for range acquireTries {
		if !errors.Is(err, ErrEnded) {
			break
		}
		r, err = ps.acquire(ctx, &a, conn)
	}
	if gone := leave(); r != nil && gone { // nobody hears of it
		if s, err := ps.cfg.Sandboxes.Find(r.ID); err == nil {
			s.Remove("the connection that acquired it ended")
		}
	}
	return r, err
}

func (ps *Pools) acquire(ctx context.Context, a *api.AcquireParams, conn uint64) (*api.Sandbox, error) {
	late := time.NewTimer(time.Duration(a.WaitMS * float64(time.Millisecond)))
	defer late.Stop()
	p, s, turn, err := ps.takeReady(a)
	for s != nil && !s.Alive() {
		s.Remove(endedWaiting)
		p, s, turn, err = ps.takeReady(a)
	}
	switch {
	case err != nil:
		return nil, err
	case s != nil:
		ps.mu.Lock()
		p.later(refillAfter)
		ps.unlock()
		return p.hand(ctx, s, a, conn)
	case turn == nil:
		return nil, nil
	}
	select {
	case h := <-turn:
		if h.err != nil {
			return nil, h.err
		}
		return p.hand(ctx, h.s, a, conn)
	case <-late.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	ps.mu.Lock()
	defer ps.unlock()
	if !p.waiters.leave(turn) { // its turn came at the same moment
		if h := <-turn; h.s != nil {
			p.giveBack(h.s)
		}
	}
	return nil, err
}

// takeReady takes one out of the pool that a names, the one whose memory is warm. Where none is ready it has one made,
// and, for who waits, takes a turn.
func (ps *Pools) takeReady(a *api.AcquireParams) (p *pool, s Sandbox, turn chan handed, err error) {
	ps.mu.Lock()
	defer ps.unlock()
	if p, err = ps.of(a.Pool); err != nil {
		return nil, nil, nil, err
	}
	p.asked = true
	if last := len(p.ready) - 1; last >= 0 {
		s = p.ready[last]
		p.ready = p.ready[:last]
		return p, s, nil, nil
	}
	if a.WaitMS > 0 {
		turn = p.waiters.join()
	}
	p.fill()
	return p, nil, turn, nil
}

// giveBack puts back one that nobody has had; Pools.mu is held.
func (p *pool) giveBack(s Sandbox) {
	if p.closed {
		p.ps.remove("its pool was removed", s)
		return
	}
	p.put(s)
}

// hand makes s, which was taken out of p, the caller's.
func (p *pool) hand(ctx context.Context, s Sandbox, a *api.AcquireParams, conn uint64) (*api.Sandbox, error) {
	err := context.Cause(ctx)
	if err == nil {
		err = s.Assign(conn, a)
	}
	if err != nil && !errors.Is(err, ErrEnded) {
		p.ps.mu.Lock()
		defer p.ps.unlock()
		p.giveBack(s)
		return nil, err
	}
	var r api.Sandbox
	if err == nil {
		r, err = s.Begin(ctx, a)
	}
	if errors.Is(err, ErrEnded) {
		err = api.Errorf(api.Unavailable, "sandbox %s of pool %q: %w", s.ID(), a.Pool, ErrEnded).WithHint("try again")
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}
