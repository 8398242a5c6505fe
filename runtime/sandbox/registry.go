package sandbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
)

// registry knows the sandboxes of a daemon by their ids, names and scopes, and the connections that wait for one. Its
// lock guards all of it, and is taken before a sandbox's own: Sandbox says what of it both guard.
type registry struct {
	mu       sync.Mutex // guards what follows
	closed   bool       // none is made any more
	byID     map[string]*Sandbox
	byName   map[string]*Sandbox
	lastBusy time.Time
	lost     bool            // hutch-launch has ended
	gone     map[uint64]bool // connections that ended while a create was under way
	creating map[uint64]int
	scopes   map[scopeKey]*scope
}

func newRegistry() registry {
	return registry{
		byID: map[string]*Sandbox{}, byName: map[string]*Sandbox{}, gone: map[uint64]bool{},
		creating: map[uint64]int{}, scopes: map[scopeKey]*scope{}, lastBusy: time.Now(),
	}
}

// find finds a sandbox by id or name.
func (g *registry) find(ref string) (*Sandbox, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.byID[ref]; ok {
		return s, nil
	}
	if s, ok := g.byName[ref]; ok {
		return s, nil
	}
	return nil, api.Errorf(api.NotFound, "no sandbox %q", ref).WithHint("hutch ps lists the sandboxes")
}

// alive finds a sandbox that has processes, and its PID 1.
func (g *registry) alive(ref string) (*Sandbox, int, error) {
	s, err := g.find(ref)
	if err != nil {
		return nil, 0, err
	}
	r := s.Record()
	if r.State != api.Running && r.State != api.Paused {
		return s, 0, ended(s)
	}
	return s, r.PID, nil
}

// of returns the sandbox of an id, nil where there is none.
func (g *registry) of(id string) *Sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
}

// here reports whether s is what its id means: it was not stopped, started or removed meanwhile.
func (g *registry) here(s *Sandbox) bool { return g.of(s.id) == s }

// all are all sandboxes, in no order.
func (g *registry) all() []*Sandbox {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]*Sandbox, 0, len(g.byID))
	for _, s := range g.byID {
		list = append(list, s)
	}
	return list
}

// takeTurn finds a sandbox whose turn to be stopped, started or removed the caller has until done is called.
func (g *registry) takeTurn(ctx context.Context, ref string) (s *Sandbox, done func(), err error) {
	for {
		if s, err = g.find(ref); err != nil {
			return nil, nil, err
		}
		if done, err = s.turn.Take(ctx); err != nil {
			return nil, nil, err
		}
		if g.here(s) {
			return s, done, nil
		}
		done() // it was stopped or started meanwhile: there is another
	}
}

// findStarted is find, and waits for the end of a start that is under way: what is to end it comes after that. A
// creation, which has not the turn, is its caller's to end.
func (g *registry) findStarted(ctx context.Context, ref string) (*Sandbox, error) {
	s, err := g.find(ref)
	if err != nil || s.state() != api.Creating {
		return s, err
	}
	s, done, err := g.takeTurn(ctx, ref)
	if err == nil {
		done()
	}
	return s, err
}

// Get returns the record of a sandbox by id or name.
func (g *registry) Get(ref string) (api.Sandbox, error) {
	s, err := g.find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return s.now(), nil
}

// Workspace returns the id of a sandbox and a copy of its workspace as its creator has named it; nil where it has none.
func (g *registry) Workspace(ref string) (id string, w *api.Workspace, err error) {
	s, err := g.find(ref)
	if err != nil {
		return "", nil, err
	}
	if s.spec.Workspace != nil {
		copied := *s.spec.Workspace
		w = &copied
	}
	return s.id, w, nil
}

// List returns the records of the sandboxes with all the given labels, oldest first.
func (g *registry) List(_ context.Context, p api.ListParams) (api.SandboxList, error) {
	records := []api.Sandbox{}
	for _, s := range g.all() {
		if hasLabels(s.Record().Labels, p.Labels) {
			records = append(records, s.now())
		}
	}
	slices.SortFunc(records, func(a, b api.Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return api.SandboxList{Sandboxes: records}, nil
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// OfTemplate counts the sandboxes of a template: those in use, and those that wait in pools.
func (g *registry) OfTemplate(name string) (used, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.byID {
		switch {
		case s.templated == nil || s.templated.Name != name:
		case s.waits():
			waiting++
		default:
			used++
		}
	}
	return used, waiting
}

// Lost says that hutch-launch has ended and takes every sandbox with it.
func (g *registry) Lost() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = true
}

// whyEnded is the verdict of an exec that ended with its sandbox.
func (g *registry) whyEnded() api.Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lost {
		return api.VerdictLost
	}
	return api.VerdictSandbox
}

// count is how many sandboxes there are but those that are stopped for later; mu is held.
func (g *registry) count() (n int) {
	for _, s := range g.byID {
		if !s.stopped {
			n++
		}
	}
	return n
}

// put lists s, under its name, too, unless that is another's than old's; mu is held.
func (g *registry) put(s, old *Sandbox) {
	g.byID[s.id] = s
	if s.name != "" && (g.byName[s.name] == nil || g.byName[s.name] == old) {
		g.byName[s.name] = s
	}
}

// exchange puts another object in the place of a sandbox.
func (g *registry) exchange(old, s *Sandbox) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.put(s, old)
	if sc := g.scopeOf(s); sc != nil && (sc.s == nil || sc.s == old) {
		sc.s = s
	}
	g.lastBusy = time.Now()
}

// remove takes s out of the maps; mu is held.
func (g *registry) remove(s *Sandbox) {
	delete(g.byID, s.id)
	if g.byName[s.name] == s {
		delete(g.byName, s.name)
	}
	g.lastBusy = time.Now()
}

// drop takes a sandbox that was never admitted out of the maps.
func (g *registry) drop(s *Sandbox) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s)
	g.doneCreating(s.conn)
}

// enter counts a connection that waits for a sandbox, so that its end is noted, until leave is called, which reports
// whether it has ended.
func (g *registry) enter(conn uint64) (leave func() (gone bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.creating[conn]++
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.doneCreating(conn)
	}
}

// doneCreating is the end of what creating counts; mu is held.
func (g *registry) doneCreating(conn uint64) (gone bool) {
	g.creating[conn]--
	gone = g.gone[conn]
	if g.creating[conn] == 0 {
		delete(g.creating, conn)
		delete(g.gone, conn)
	}
	return gone
}

// takeScope waits for the turn in a scope, which leave ends.
func (g *registry) takeScope(ctx context.Context, k scopeKey) (sc *scope, leave func(), err error) {
	g.mu.Lock()
	sc = g.scope(k)
	sc.waiting++
	g.mu.Unlock()
	done := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		sc.waiting--
		g.tidyScope(k, sc)
	}
	give, err := sc.turn.Take(ctx)
	if err != nil {
		done()
		return nil, nil, err
	}
	return sc, func() { give(); done() }, nil
}

// scope finds or makes a scope; mu is held.
func (g *registry) scope(k scopeKey) *scope {
	sc := g.scopes[k]
	if sc == nil {
		sc = &scope{turn: admission.NewTurn(), users: map[uint64]bool{}}
		g.scopes[k] = sc
	}
	return sc
}

// scopeOf is the scope of a sandbox, nil of one that has none; mu is held.
func (g *registry) scopeOf(s *Sandbox) *scope {
	if s.spec.Scope == nil {
		return nil
	}
	return g.scope(keyOf(s.user, *s.spec.Scope))
}

// unscope says that a sandbox is no longer its scope's; mu is held.
func (g *registry) unscope(s *Sandbox) {
	if s.spec.Scope == nil {
		return
	}
	k := keyOf(s.user, *s.spec.Scope)
	if sc := g.scopes[k]; sc != nil && sc.s == s {
		sc.s = nil
		g.tidyScope(k, sc)
	}
}

// tidyScope forgets a scope that nobody needs; mu is held.
func (g *registry) tidyScope(k scopeKey, sc *scope) {
	if sc.s == nil && sc.waiting == 0 && g.scopes[k] == sc {
		delete(g.scopes, k)
	}
}
