package admission

import (
	"context"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Turn is a token: whoever has taken it keeps others out.
type Turn chan struct{}

// NewTurn is one that nobody has.
func NewTurn() Turn { return make(Turn, 1) }

// Take gives the caller the turn until done is called, or fails with why ctx has ended.
func (t Turn) Take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return t.give, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TryTake is Take if nobody has the turn, else nil.
func (t Turn) TryTake() (done func()) {
	select {
	case t <- struct{}{}:
		return t.give
	default:
		return nil
	}
}

func (t Turn) give() { <-t }

// Gate is where everybody enters who starts something in one sandbox.
type Gate struct {
	Turn // to pause, resume, or look at what stands still

	mu      sync.Mutex    // guards what follows
	entered int           // starts under way
	shut    bool          // a pause is under way: nobody enters
	empty   chan struct{} // closed when entered is 0; nil unless a pause waits for that
	// stopReclaim ends what takes memory back; nil when nothing does. gone says that nothing may any more.
	stopReclaim func()
	gone        bool
}

// NewGate is open.
func NewGate() *Gate { return &Gate{Turn: NewTurn()} }

// tryEnter enters unless the gate is shut, and reports whether it has.
func (g *Gate) tryEnter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.entered++
	}
	return !g.shut
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entered--; g.entered == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Again enters once more: the caller is in. leave may be called more than once.
func (g *Gate) Again() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entered++
	return sync.OnceFunc(g.leave)
}

// Shut keeps everybody out. The caller has the turn, and must call Open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// Clear is Shut, and waits until those who are in the sandbox of an id have left. After an error, too, the caller must
// call Open.
func (g *Gate) Clear(ctx context.Context, id string) error {
	g.mu.Lock()
	g.shut = true
	var empty chan struct{}
	if g.entered > 0 {
		empty = make(chan struct{})
		g.empty = empty
	}
	g.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return api.Errorf(api.Unavailable, "a command is being started in sandbox %s and does not come up", id).
			WithHint("try again when it runs, or end it: hutch rpc exec.list, exec.kill")
	}
}

// Open lets everybody in.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.empty = false, nil
}

// End is called when the sandbox is stopped or removed: nothing of its memory is taken back any more.
func (g *Gate) End() { g.keepRest(true) }

// keepRest leaves the sandbox what it still has, and returns when nothing is being taken back: the kernel removes no
// cgroup meanwhile, and lets nobody else make, remove or freeze one while it waits for that.
func (g *Gate) keepRest(gone bool) {
	g.mu.Lock()
	stop := g.stopReclaim
	g.stopReclaim, g.gone = nil, g.gone || gone
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Reclaim takes the page cache of a paused sandbox back, after the reply to the pause: what it has read and written and
// does not use now. Where that cannot be nothing happens, and the record says nothing. The caller has the turn.
func (p *Pauses) Reclaim(s Sandbox) {
	group, _ := s.Cgroup()
	if group == "" || s.State() != api.Paused { // killed just now
		return
	}
	g := s.Gate()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return
	}
	g.stopReclaim = p.cfg.Cgroups.Reclaim(group, func(bytes int64) {
		if !s.NoteReclaimed(bytes) { // it has ended
			return
		}
		s.Save()
		p.cfg.Events.Emit(api.EventReclaimed, s.ID(), "", api.ReclaimedEvent{Bytes: bytes})
	})
}
