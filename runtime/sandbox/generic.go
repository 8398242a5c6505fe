package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// generic is a sandbox that was launched before anybody asked for one, from no image. A create
// that fits takes its id and gives it a root, mounts, a name and limits: runtime/DESIGN.md,
// "Claiming by a root swap". It is in no list and has no record; hutch-launch ends those
// of a hutchd that is gone.
type generic struct {
	id, dir string
	pid     int
	pidfd   *os.File
	net     Namespace // of mode none, or for a network, which the claim opens in it
	guest   *guestapi.Client
	// end kills it, once, unmount takes off what it was prepared in, and forget removes what is on disk, in that order.
	// Whoever has taken it owns all three.
	end, unmount, forget func() error
	prepared             *prepared    // nil when it was not
	spare                []exec.Group // exec.Set.Spare
	of                   *generics
}

// discard ends a generic sandbox that nobody will use.
func (g *generic) discard() error { return errors.Join(g.end(), g.unmount(), g.forget()) }

// base is where the folders of a generic sandbox's own, empty root are, below its folder.
const base = "base"

// launchGeneric makes one. When it fails nothing is left.
func (m *Manager) launchGeneric(ctx context.Context, kind kindAhead) (_ *generic, err error) {
	id := newID("sb_")
	s := &Sandbox{id: id, dir: filepath.Join(m.cfg.Dir, id), record: api.Sandbox{Seccomp: api.SeccompDefault,
		Hostname: "hutch"}, execs: exec.NewSet(exec.ClockState{})}
	s.root = &Root{Dir: filepath.Join(s.dir, base), Lower: []string{"lower"}}
	m.placeCgroup(s)
	var below, above cleanup.Stack // what comes after the end of its processes, and before
	defer below.Run(&err)
	defer above.Run(&err)
	f := &creation{m: m, req: &CreateRequest{}, s: s, phases: map[string]float64{}, generic: true,
		guarded: kind&guardedAhead != 0, moves: kind&movesAhead != 0}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, diskError("make a sandbox's folder", err)
	}
	below.Add(func() error { return removeAll(s.dir) })
	if err := m.foldersOfGeneric(s.dir); err != nil {
		return nil, diskError("make a sandbox's folder", err)
	}
	g := &generic{id: id, dir: s.dir, of: &m.ahead[kind]}
	if kind&networkedAhead != 0 {
		g.net, err = m.cfg.Networks.Ahead()
	} else {
		g.net, err = m.cfg.Networks.Plain(id)
	}
	if err != nil {
		return nil, err
	}
	f.netns = g.net.File()
	below.Add(g.net.Close)
	defer func() {
		above = f.undo
		if f.filter != nil {
			_ = f.filter.Close()
		}
	}()
	if err := f.mountAbout(); err != nil {
		return nil, err
	}
	for _, do := range []func(*creation, context.Context) error{(*creation).build, (*creation).launch, (*creation).
		greet} {
		if err := do(f, ctx); err != nil {
			return nil, err
		}
	}
	if err := m.Execs.MakeSpare(execBox{m, s}); err != nil {
		return nil, err
	}
	g.pid, g.pidfd, g.guest, g.spare = s.record.PID, s.pidfd, s.guest, s.execs.Spare()
	g.end, g.forget = sync.OnceValue(f.undo.Release()), below.Release()
	g.unmount = func() error { return nil }
	return g, nil
}

// foldersOfGeneric makes all that a claim would have to make: a file system without a journal takes up to half a
// millisecond for each name.
func (m *Manager) foldersOfGeneric(dir string) error {
	for _, sub := range []string{"root", "pts", "run", "mnt", "fs", aboutFolder, base, base + "/lower", base + "/upper",
		base + "/work"} {
		mode := os.FileMode(0o700)
		if sub == "root" || sub == "pts" {
			mode = 0o755
		}
		if err := os.Mkdir(filepath.Join(dir, sub), mode); err != nil {
			return err
		}
	}
	upper, err := makeRootFolders(dir)
	if err != nil {
		return err
	}
	for _, name := range ownNames {
		if err := os.WriteFile(filepath.Join(upper, name), nil, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, recordFile+tmpSuffix), nil, 0o600)
}

// fits says whether a generic sandbox, once it has been claimed, is what a launch would have made:
// what is fixed when PID 1 starts must be what everybody gets who asks for nothing else.
func (req *CreateRequest) fits(l *api.Limits) bool {
	sp := &req.Spec
	return !req.Debug && (req.origin == nil || req.origin.box == nil) && // whose steps are those of a launch
		(sp.Seccomp == "" || sp.Seccomp == api.SeccompDefault) && sp.SeccompProfile == "" && // PID 1's own filter
		sp.Landlock != api.LandlockOff && sp.IDs != api.IDsReal && // PID 1 has been told to use these, where it can
		!sp.ReadOnly // which is decided when a root is made
}

// claim makes the generic sandbox that f has taken the one that was asked for.
func (f *creation) claim(ctx context.Context) error {
	start := time.Now()
	f.s.execs.SetSpare(f.claimed.spare)
	if f.claimed.prepared != nil {
		if err := f.takePrepared(); err != nil {
			return err
		}
		f.phases["launch.prepared"] = ms(time.Since(start))
	} else {
		if err := f.swapRoot(ctx); err != nil {
			return err
		}
		f.s.setPID(f.claimed.pid)
		f.m.watchCalls(f.s)
		if err := f.guardClaimed(ctx); err != nil {
			return err
		}
	}
	if want := f.m.shmBytes(f.s); f.claimed.prepared == nil || f.claimed.prepared.key.shm != want {
		if err := f.m.resizeShm(f.claimed.pid, want); err != nil {
			return fmt.Errorf("size /dev/shm: %w", err)
		}
	}
	f.phases["launch.claim"] = ms(time.Since(start))
	return nil
}

// swapRoot gives the generic sandbox that f has taken its root.
func (f *creation) swapRoot(ctx context.Context) error {
	f.s.pidfd, f.s.guest = f.claimed.pidfd, f.claimed.guest
	c := launchapi.Claim{Overlay: f.overlayOf(), Hostname: f.s.record.Hostname}
	for _, b := range append(append([]spec.Bind{}, f.s.root.Binds...), f.binds...) {
		c.Binds = append(c.Binds, launchapi.ClaimBind{Source: b.Source, Target: b.Target, ReadOnly: b.ReadOnly})
	}
	// Before what the steps before have made, which the sandbox uses from now on.
	f.undo.Add(f.claimed.end)
	c.Ahead = f.ahead
	return f.m.cfg.Launcher.Claim(ctx, f.s.id, c)
}

// startOver makes everything ready for a launch in the place of what was to be claimed, which
// hutch-launch has destroyed. What the claim has written goes: overlayfs refuses to use the folders of a
// volatile mount again.
func (f *creation) startOver(ctx context.Context) error {
	err := f.claimed.end()
	f.claimed, f.s.guest, f.s.pidfd = nil, nil, nil
	f.s.execs.SetSpare(nil)
	for _, dir := range []string{"fs/upper", "fs/work"} {
		err = errors.Join(err, removeAll(filepath.Join(f.s.dir, dir)))
	}
	for _, again := range []func() error{f.rootFolders, f.mountAbout, func() error { return f.m.tellNew(f.s) }} {
		if err == nil {
			err = again()
		}
	}
	if err != nil {
		return err
	}
	return f.build(ctx)
}

// refillAfter is how long no sandbox must have been created before the next is launched ahead:
// that takes a core for as long as three short commands run.
const refillAfter = 30 * time.Millisecond

// replaceAfter is the same behind one that ended by itself, as all may.
const replaceAfter = time.Second

// kindAhead is a kind of generic sandboxes: what is fixed when PID 1 starts. Of each some are launched once one could
// have been used.
type kindAhead int

// The kinds, or'ed: with a network (runtime/DESIGN.md, "Claiming by a root swap"), with a workspace in which PID 1
// makes names in the commands' place, and with one in which it moves folders.
const (
	networkedAhead kindAhead = 1 << iota
	guardedAhead
	movesAhead
	kindsAhead
)

// generics are the generic sandboxes of a Manager, of one kind.
type generics struct {
	m    *Manager
	kind kindAhead

	mu     sync.Mutex
	ready  []*generic
	key    aheadKey  // of the last create
	keyed  bool      // it had one
	failed time.Time // when one could not be prepared for it
	closed bool
	timer  *time.Timer // starts fill; nil until something was created
	busy   bool        // fill runs
	wg     sync.WaitGroup
}

// take returns a generic sandbox that is alive, the caller's until settled is called of it; nil when there is none.
// With a key it is one that was prepared for that, if there is one, else one that was not prepared.
func (p *generics) take(w aheadKey, keyed bool) *generic {
	p.mu.Lock()
	p.note(w, keyed)
	p.mu.Unlock()
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.ready, func(g *generic) bool {
			return keyed && g.prepared != nil &&
				g.prepared.key == w
		})
		if i < 0 {
			i = slices.IndexFunc(p.ready, func(g *generic) bool { return g.prepared == nil })
		}
		if i < 0 {
			p.mu.Unlock()
			return nil
		}
		g := p.ready[i]
		p.ready = slices.Delete(p.ready, i, i+1)
		p.wg.Add(1)
		p.mu.Unlock()
		if exited, err := p.m.cfg.Kernel.Exited(g.pidfd); err == nil && !exited {
			return g
		}
		p.discard(g)
		g.settled()
	}
}

// settled says that g, which somebody has taken, is a sandbox of the Manager's or is being discarded. Until then close
// waits: the daemon's folder must not go while there is one in it.
func (g *generic) settled() { g.of.wg.Done() }

// note remembers what the next one is prepared for. Those that were prepared for something else go when the same is
// asked for twice in a row: who takes turns between two images keeps one for the one, and unprepared ones for the
// other. mu is held.
func (p *generics) note(w aheadKey, keyed bool) {
	again := keyed && p.keyed && p.key == w
	p.key, p.keyed = w, keyed
	if !again {
		p.failed = time.Time{}
		return
	}
	p.ready = slices.DeleteFunc(p.ready, func(g *generic) bool {
		other := g.prepared != nil && g.prepared.key != w
		if other {
			p.discard(g)
		}
		return other
	})
}

// prepareAgainAfter is how long none is prepared for what one could not be prepared for.
const prepareAgainAfter = time.Minute

// prepares says what the next one is prepared for. One at least stays as it is, for whoever wants something else. mu is
// held.
func (p *generics) prepares() (w aheadKey, ok bool) {
	unprepared := slices.ContainsFunc(p.ready, func(g *generic) bool { return g.prepared == nil })
	return p.key, p.keyed && unprepared && time.Since(p.failed) > prepareAgainAfter
}

// discard ends one in the background.
func (p *generics) discard(gs ...*generic) {
	for _, g := range gs {
		p.wg.Go(func() {
			if err := g.discard(); err != nil {
				p.m.cfg.Logger.Error("remove a sandbox that was launched ahead", "sandbox", g.id, "err", err)
			}
		})
	}
}

// exited replaces one whose PID 1 has ended.
func (p *generics) exited(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, g := range p.ready {
		if g.id == id {
			p.ready = append(p.ready[:i:i], p.ready[i+1:]...)
			p.discard(g)
			p.later(replaceAfter)
			return
		}
	}
}

// refill sees to it that the pool is full some time after the last create.
func (p *generics) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.later(refillAfter)
}

// later has fill called; mu is held.
func (p *generics) later(after time.Duration) {
	switch {
	case p.closed || p.busy:
	case p.timer == nil:
		p.timer = time.AfterFunc(after, p.fill)
	default:
		p.timer.Reset(after)
	}
}

// fill launches one, and goes on until there are enough or a create comes between.
func (p *generics) fill() {
	p.mu.Lock()
	want := p.m.settings.Load().Ready
	var extra []*generic
	if n := len(p.ready); n > want { // the configuration has changed
		extra, p.ready = p.ready[want:], p.ready[:want:want]
	}
	p.discard(extra...)
	if p.closed || p.busy || len(p.ready) >= want {
		p.mu.Unlock()
		return
	}
	p.busy = true
	p.wg.Add(1)
	w, prepare := p.prepares()
	p.mu.Unlock()
	defer p.wg.Done()
	g, err := p.m.launchGeneric(p.m.ctx, p.kind)
	var unprepared error
	if err == nil && prepare {
		unprepared = p.m.prepareAhead(p.m.ctx, g, w, p.kind&networkedAhead != 0)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	switch {
	case unprepared != nil: // the image may be gone
		p.discard(g)
		if !p.closed {
			p.m.cfg.Logger.Info("claim a sandbox ahead", "image", w.image, "err", unprepared)
			p.failed = time.Now()
			p.later(refillAfter)
		}
	case err != nil:
		// The next create tries again, and says why if it fails as well.
		if !p.closed {
			p.m.cfg.Logger.Warn("launch a sandbox ahead", "err", err)
		}
	case p.closed:
		p.discard(g)
	default:
		p.ready = append(p.ready, g)
		if len(p.ready) < want {
			p.later(refillAfter)
		}
	}
}

// genericsFor are those that suit sp.
func (m *Manager) genericsFor(sp *api.Spec) *generics {
	var kind kindAhead
	if sp.Network.Settled().Mode != api.NetNone {
		kind |= networkedAhead
	}
	switch {
	case refusesNew(sp): // PID 1 moves folders then, too
		kind |= guardedAhead
	case overlays(sp):
		kind |= movesAhead
	}
	return &m.ahead[kind]
}

// Ready is how many generic sandboxes wait, of all kinds.
func (m *Manager) Ready() (n int) {
	for i := range m.ahead {
		p := &m.ahead[i]
		p.mu.Lock()
		n += len(p.ready)
		p.mu.Unlock()
	}
	return n
}

// close ends all and waits.
func (p *generics) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	left := p.ready
	p.ready = nil
	p.discard(left...)
	p.mu.Unlock()
	p.wg.Wait()
}
