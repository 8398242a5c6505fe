package warm

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Config is what Pools needs; all fields are required.
type Config struct {
	Sandboxes Sandboxes
	File      string                             // pools.json, which the next hutchd reads
	Write     func(path string, value any) error // replaces a file whole
	Owner     uint32                             // whose quotas the pools of the configuration count for
	CPUs      int                                // how many sandboxes are made at once for those who wait
	Closed    error                              // what is refused when the daemon ends: the next one may have it
	Logger    *slog.Logger
}

// Pools serves the pools of a daemon. A pool holds sandboxes that are made alike before anybody asks: whole ones, in
// the state waiting, with whatever image, network and profile, where one of Ahead fits only what asks for nothing
// special. Acquire turns one into somebody's; it is used by nobody else, ever: released, it is destroyed. Its methods
// may be called from any goroutine.
type Pools struct {
	cfg    Config
	ctx    context.Context
	saving sync.Mutex     // held while File is written
	wg     sync.WaitGroup // of what is being made

	mu      sync.Mutex // guards what follows, and each pool; unlock by unlock
	closed  bool       // nothing is made any more
	started bool       // pools of the hutchd before have been taken over
	pools   map[string]*pool
	// What unlock does: remove leaving, and look at entered, which has just come into the stock of its pool.
	leaving []leaving
	entered []entered
}

type leaving struct {
	s   Sandbox
	why string
}

type entered struct {
	pool string
	s    Sandbox
}

// NewPools serves pools, of which there are none. ctx ends what is being made.
func NewPools(ctx context.Context, cfg Config) *Pools {
	return &Pools{cfg: cfg, ctx: ctx, pools: map[string]*pool{}}
}

// pool is one of them; Pools.mu guards all of it but ctx.
type pool struct {
	stock[Sandbox]
	ps         *Pools
	spec       api.PoolSpec
	user       uint32 // whose quotas count
	configured bool
	waiters    turns // of acquires
	asked      bool  // so that a pool that is not prewarmed is filled, too
	age        int   // how often its template has become another one
	failed     error // of the last attempt
	backoff    backoff
	cancel     context.CancelCauseFunc
	ctx        context.Context
}

// unlock does what was noted meanwhile.
func (ps *Pools) unlock() {
	leave, enter := ps.leaving, ps.entered
	ps.leaving, ps.entered = nil, nil
	ps.mu.Unlock()
	for _, l := range leave {
		l.s.Remove(l.why)
	}
	for _, e := range enter {
		if !e.s.Alive() && ps.Lost(e.pool, e.s.ID()) {
			e.s.Remove(endedWaiting)
		}
	}
}

// endedWaiting is why one is removed that nobody has had.
const endedWaiting = "it ended while it waited"

// remove notes that sandboxes are to be removed; mu is held.
func (ps *Pools) remove(why string, all ...Sandbox) {
	for _, s := range all {
		ps.leaving = append(ps.leaving, leaving{s, why})
	}
}

// Request is a request for a pool.
type Request struct {
	Spec     api.PoolSpec
	User     uint32
	Progress func(api.Progress) // of the first sandbox; never nil
}

// Create makes a pool. Where it is to be filled ahead, it returns when the first sandbox waits, so that who asks for
// what cannot be made hears of it.
func (ps *Pools) Create(ctx context.Context, req Request) (api.Pool, error) {
	if err := req.Spec.Validate(); err != nil {
		return api.Pool{}, err
	}
	ahead := req.Spec.Ahead()
	ps.mu.Lock()
	p, err := ps.add(req.Spec, req.User)
	if err == nil && ahead {
		p.making++
	}
	ps.unlock()
	if err != nil {
		return api.Pool{}, err
	}
	if ahead {
		if err := p.makeOne(ctx, req.Progress); err != nil {
			ps.mu.Lock()
			p.close()
			ps.unlock()
			return api.Pool{}, err
		}
	}
	ps.save()
	return ps.Status(api.PoolParams{Pool: req.Spec.Name})
}

// add lists a new pool; mu is held.
func (ps *Pools) add(spec api.PoolSpec, user uint32) (*pool, error) {
	if ps.closed {
		return nil, ps.cfg.Closed
	}
	if _, taken := ps.pools[spec.Name]; taken {
		return nil, api.Errorf(api.AlreadyExists, "there is a pool %q", spec.Name).WithField("name").
			WithHint("choose another name, or remove it: hutch pool rm %s", spec.Name)
	}
	p := &pool{ps: ps, spec: spec, user: user}
	p.due = func() {
		ps.mu.Lock()
		defer ps.unlock()
		p.fill()
	}
	p.ctx, p.cancel = context.WithCancelCause(ps.ctx)
	ps.pools[spec.Name] = p
	return p, nil
}

func errPoolGone(name string) error {
	return api.Errorf(api.NotFound, "no pool %q", name).WithHint("hutch pool ls lists the pools")
}

// of is the pool of that name; mu is held.
func (ps *Pools) of(name string) (*pool, error) {
	if p := ps.pools[name]; p != nil {
		return p, nil
	}
	if ps.closed {
		return nil, ps.cfg.Closed
	}
	return nil, errPoolGone(name)
}

// Release destroys a sandbox that was acquired, and is done when nothing of it runs. Nothing is ever reset for somebody
// else.
func (ps *Pools) Release(ctx context.Context, ref string) (api.KillResult, error) {
	s, err := ps.cfg.Sandboxes.Find(ref)
	if err != nil {
		return api.KillResult{}, err
	}
	switch r := s.Record(); {
	case r.Pool == "":
		return api.KillResult{}, api.Errorf(api.FailedPrecondition, "sandbox %s is of no pool", s.ID()).
			WithHint("hutch rm -f %s removes it", s.ID())
	case r.State == api.Waiting:
		return api.KillResult{},
			api.Errorf(api.FailedPrecondition, "sandbox %s waits in pool %q; nobody has acquired it", s.ID(), r.Pool).
				WithHint("pool.acquire takes one out of a pool")
	}
	return ps.cfg.Sandboxes.Remove(ctx, ref)
}

// Status is how a pool is filled.
func (ps *Pools) Status(p api.PoolParams) (api.Pool, error) {
	inUse := ps.cfg.Sandboxes.InUse() // first, so that none counts twice
	ps.mu.Lock()
	defer ps.unlock()
	of, err := ps.of(p.Pool)
	if err != nil {
		return api.Pool{}, err
	}
	return of.status(inUse), nil
}

// All are the pools, by name.
func (ps *Pools) All() []api.Pool {
	inUse := ps.cfg.Sandboxes.InUse()
	ps.mu.Lock()
	defer ps.unlock()
	list := make([]api.Pool, 0, len(ps.pools))
	for _, p := range ps.pools {
		list = append(list, p.status(inUse))
	}
	slices.SortFunc(list, func(a, b api.Pool) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (p *pool) status(inUse map[string]int) api.Pool {
	st := api.Pool{PoolSpec: p.spec, Available: len(p.ready), InUse: inUse[p.spec.Name], Configured: p.configured}
	st.Total = st.Available + st.InUse
	if p.failed != nil {
		st.Error = p.failed.Error()
	}
	return st
}

// Resize changes how many wait. What is too many is removed.
func (ps *Pools) Resize(p api.PoolResizeParams) (api.Pool, error) {
	if err := api.CheckPoolSize(p.Size); err != nil {
		return api.Pool{}, err
	}
	st, err := ps.resize(p)
	if err == nil {
		ps.save()
	}
	return st, err
}

func (ps *Pools) resize(p api.PoolResizeParams) (api.Pool, error) {
	inUse := ps.cfg.Sandboxes.InUse()
	ps.mu.Lock()
	defer ps.unlock()
	of, err := ps.of(p.Pool)
	if err != nil {
		return api.Pool{}, err
	}
	of.resize(p.Size)
	return of.status(inUse), nil
}

// resize removes the oldest where there are too many.
func (p *pool) resize(size int) {
	p.spec.Size = size
	if n := len(p.ready) - size; n > 0 {
		p.ps.remove("its pool became smaller", p.ready[:n]...)
		p.ready = slices.Clone(p.ready[n:])
	}
	p.fill()
}

// Remove removes a pool with what waits; what was acquired goes on until it is released.
func (ps *Pools) Remove(p api.PoolParams) (api.PoolRemoved, error) {
	inUse := ps.cfg.Sandboxes.InUse()
	ps.mu.Lock()
	of, err := ps.of(p.Pool)
	var r api.PoolRemoved
	if err == nil {
		r = api.PoolRemoved{InUse: inUse[p.Pool], Removed: of.close()}
	}
	ps.unlock()
	if err == nil {
		ps.save()
	}
	return r, err
}

// close ends the pool and removes what waits; it returns how many.
func (p *pool) close() int {
	if p.closed {
		return 0
	}
	delete(p.ps.pools, p.spec.Name)
	why := errPoolGone(p.spec.Name)
	if p.ps.closed {
		why = p.ps.cfg.Closed
	}
	p.cancel(why)
	p.waiters.fail(why)
	left := p.end()
	p.ps.remove("its pool was removed", left...)
	return len(left)
}

// Shut has nothing made any more, in pools that are still there: the daemon is about to end.
func (ps *Pools) Shut() {
	ps.mu.Lock()
	defer ps.unlock()
	ps.closed = true
}

// Close ends all pools, and tells who waits. What is ready stays: the end of the daemon removes everything. Wait waits
// for what is being made.
func (ps *Pools) Close() {
	ps.mu.Lock()
	defer ps.unlock()
	ps.closed = true
	for _, p := range ps.pools {
		p.ready = nil
		p.close()
	}
}

// Wait returns when nothing is being made, after Close.
func (ps *Pools) Wait() { ps.wg.Wait() }

// Lost takes a sandbox that has ended, or is being removed, out of its pool, which makes another a little later. It
// reports whether it was one that waits.
func (ps *Pools) Lost(pool, id string) bool {
	ps.mu.Lock()
	defer ps.unlock()
	p := ps.pools[pool]
	if p == nil {
		return false
	}
	_, ok := p.lose(id)
	return ok
}
