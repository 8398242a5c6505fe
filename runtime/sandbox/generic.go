package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/warm"
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

// ID is the id that it will have as a sandbox.
func (g *generic) ID() string { return g.id }

// Discard ends a generic sandbox that nobody will use.
func (g *generic) Discard() error { return errors.Join(g.end(), g.unmount(), g.forget()) }

// base is where the folders of a generic sandbox's own, empty root are, below its folder.
const base = "base"

// Launch makes one. When it fails nothing is left.
func (h aheadHost) Launch(ctx context.Context, of int) (_ *generic, err error) {
	m, kind := h.m, kindAhead(of)
	id := newID("sb_")
	s := m.newSandbox(api.Sandbox{ID: id, Seccomp: api.SeccompDefault, Hostname: "hutch"}, api.Spec{}, 0)
	s.root = &spec.Root{Dir: filepath.Join(s.dir, base), Lower: []string{"lower"}}
	var below, above cleanup.Stack // what comes after the end of its processes, and before
	defer below.Run(&err)
	defer above.Run(&err)
	f := &creation{m: m, req: &CreateRequest{}, s: s, phases: map[string]float64{}, generic: true,
		guarded: kind&guardedAhead != 0, moves: kind&movesAhead != 0}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, diskError("make a sandbox's folder", err)
	}
	below.Add(func() error { return removeAll(s.dir) })
	if err := foldersOfGeneric(s.dir); err != nil {
		return nil, diskError("make a sandbox's folder", err)
	}
	g := &generic{id: id, dir: s.dir, of: m.Ahead.Kind(int(kind))}
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
	if err := m.Execs.MakeSpare(execBoxOf(m, s)); err != nil {
		return nil, err
	}
	g.pid, g.pidfd, g.guest, g.spare = s.record.PID, s.pidfd, s.guest, s.execs.Spare()
	g.end, g.forget = sync.OnceValue(f.undo.Release()), below.Release()
	g.unmount = func() error { return nil }
	return g, nil
}

// foldersOfGeneric makes all that a claim would have to make: a file system without a journal takes up to half a
// millisecond for each name.
func foldersOfGeneric(dir string) error {
	for _, sub := range []string{"root", "pts", "run", "mnt", "fs", about.Folder, base, base + "/lower",
		base + "/upper", base + "/work"} {
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
func (req *CreateRequest) fits() bool {
	sp := &req.Spec
	return !req.Debug && (req.origin == nil || req.origin.box == nil) && // whose steps are those of a launch
		(sp.Seccomp == "" || sp.Seccomp == api.SeccompDefault) && sp.SeccompProfile == "" && // PID 1's own filter
		sp.Landlock != api.LandlockOff && sp.IDs != api.IDsReal && // PID 1 has been told to use these, where it can
		!sp.ReadOnly // which is decided when a root is made
}

// claim makes the generic sandbox that f has taken the one that was asked for. Where that fails, one is launched.
func (f *creation) claim(ctx context.Context) error {
	start := time.Now()
	err := f.claimGeneric(ctx)
	if err == nil {
		f.phases["launch.claim"] = ms(time.Since(start))
	}
	if err == nil || context.Cause(ctx) != nil || launcherGone(err) {
		return err
	}
	f.m.cfg.Logger.Warn("claim a sandbox that was launched ahead; it is launched anew", "sandbox", f.s.id, "err", err)
	if err := f.startOver(ctx); err != nil {
		return err
	}
	return f.launch(ctx)
}

func (f *creation) claimGeneric(ctx context.Context) error {
	f.s.execs.SetSpare(f.claimed.spare)
	if err := f.swapRoot(ctx); err != nil {
		return err
	}
	f.s.setPID(f.claimed.pid)
	egressBox{f.m, f.s}.watchInit()
	if err := f.guardClaimed(ctx); err != nil {
		return err
	}
	return f.sizeShm()
}

// sizeShm gives a claimed sandbox its /dev/shm.
func (f *creation) sizeShm() error {
	if err := f.m.Meters.ResizeShm(f.claimed.pid, f.s.meter.ShmBytes()); err != nil {
		return fmt.Errorf("size /dev/shm: %w", err)
	}
	return nil
}

// claimNetwork opens the network in the namespace that PID 1 was launched in.
func (f *creation) claimNetwork(context.Context) error {
	if f.s.record.Network.Mode != api.NetNone {
		return f.openNetwork(f.claimed.net)
	}
	f.netns = f.claimed.net.File()
	return nil
}

// nothing is the step of what was done ahead.
func (f *creation) nothing(context.Context) error { return nil }

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
	f.plan = steps
	f.claimed, f.s.guest, f.s.pidfd = nil, nil, nil
	f.s.execs.SetSpare(nil)
	for _, dir := range []string{"fs/upper", "fs/work"} {
		err = errors.Join(err, removeAll(filepath.Join(f.s.dir, dir)))
	}
	for _, again := range []func() error{f.rootFolders, f.mountAbout, func() error { return f.takeAbout(ctx) }} {
		if err == nil {
			err = again()
		}
	}
	if err != nil {
		return err
	}
	return f.build(ctx)
}

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

// generics are the generic sandboxes of one kind.
type generics = warm.Kind[*generic, aheadKey]

// of are those that suit sp.
func (h aheadHost) of(sp *api.Spec) *generics {
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
	return h.m.Ahead.Kind(int(kind))
}
