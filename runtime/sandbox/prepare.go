package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/isolation"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// A generic sandbox may be *prepared*: claimed ahead, for what was asked for last. Who asks for the same gets it as it
// is; it is otherwise still one that nobody has, and ends with this hutchd. See runtime/DESIGN.md, "Prepared ahead".

// aheadKey is what a claim ahead decides: a sandbox of the same key has the same root, mounts and name.
type aheadKey struct {
	image, platform string
	bytes, inodes   int64      // limits of disk space, which decide where files are
	keep            bool       // which decides how they are mounted
	group           api.Limits // those of its cgroup
	shm             int64      // size of /dev/shm
}

// keyOf is the key of a request; false when the request asks for what no key has: host folders, a name of its own, a
// disk that is not like everybody's.
func (h aheadHost) keyOf(req *CreateRequest, l *api.Limits) (aheadKey, bool) {
	sp := &req.Spec
	w := aheadKey{image: sp.Image, platform: sp.Platform, bytes: l.DiskBytes, inodes: l.Inodes, keep: sp.Keep,
		group: meter.OfGroup(*l), shm: h.m.Meters.ShmOf(l)}
	if w.bytes > 0 && w.inodes == 0 && sp.Limits.Inodes != api.Unlimited { // as reserve does
		w.inodes = meter.DefaultInodes(w.bytes)
	}
	plain := req.origin == nil && !sp.WritableUsr && sp.Hostname == "" && len(sp.Hosts) == 0 &&
		len(workspace.Of(sp)) == 0 && h.m.cfg.Projects == nil
	return w, plain
}

// Image is the image as it was asked for.
func (k aheadKey) Image() string { return k.image }

// prepared is what a generic sandbox was given ahead.
type prepared struct {
	key   aheadKey
	root  *spec.Root
	lower []workspace.ID // its layers; nobody holds them, so that an image can be removed meanwhile
	disk  *meter.Disk    // measured
	walls api.Isolation  // what was read back of PID 1, which is what it was
	label isolation.Labels
}

// Prepare claims g for w ahead. Whatever fails, g has ended.
func (h aheadHost) Prepare(ctx context.Context, g *generic, kind int, w aheadKey) (err error) {
	m := h.m
	m.preparing.RLock()
	defer m.preparing.RUnlock()
	s := m.newSandbox(api.Sandbox{
		ID: g.id, Hostname: defaultHostname(g.id), Limits: api.Limits{DiskBytes: w.bytes, Inodes: w.inodes},
	}, api.Spec{}, 0)
	s.record.Network.Mode = api.NetNone
	if kindAhead(kind)&networkedAhead != 0 {
		s.record.Network.Mode = api.NetAllow
	}
	f := &creation{m: m, s: s, claimed: g, ahead: true, phases: map[string]float64{}, req: &CreateRequest{
		Spec:     api.Spec{Image: w.image, Platform: w.platform, Pull: api.PullNever, Keep: w.keep},
		Progress: func(api.Progress) {},
	}}
	defer f.undo.Run(&err)
	d := &prepared{key: w}
	for _, do := range []func(*creation, context.Context) error{
		(*creation).resolve,
		func(f *creation, _ context.Context) (err error) { d.lower, err = layerIDs(f.s.root); return err },
		(*creation).claimFolders,
		func(f *creation, _ context.Context) error { f.bindAbout(); return nil },
		(*creation).swapRoot,
		(*creation).rehearse,
		func(f *creation, _ context.Context) (err error) {
			d.walls, err = isolation.Walls(m.cfg.Kernel.Proc(g.pid), &m.cfg.Host.Host, api.SeccompDefault)
			d.label = isolation.LabelsOf(m.cfg.Kernel.Proc(g.pid))
			return err
		},
		func(f *creation, ctx context.Context) error { return f.holdBack(ctx, w) },
		func(f *creation, _ context.Context) error { return m.Meters.ResizeShm(g.pid, w.shm) },
	} {
		if err := do(f, ctx); err != nil {
			return err
		}
	}
	if err := s.letGo(); err != nil {
		return err
	}
	d.root, d.disk = s.root, s.meter.Disk()
	g.prepared, g.unmount = d, f.undo.Release()
	return nil
}

// holdBack sets w's limits, and measures what has been written.
func (f *creation) holdBack(ctx context.Context, w aheadKey) error {
	if f.s.cgroup != "" && w.group != (api.Limits{}) {
		if err := f.m.cfg.Cgroups.Limit(f.s.cgroup, w.group); err != nil {
			return err
		}
	}
	return f.s.meter.Measure(ctx)
}

// NoPreparing waits until no sandbox is prepared, and keeps that so until release is called: images that nobody uses
// are in use by nobody then.
func (m *Manager) NoPreparing() (release func()) {
	m.preparing.Lock()
	return m.preparing.Unlock
}

// rehearsalTimeout bounds what is only to save time.
const rehearsalTimeout = 2 * time.Second

// rehearse has PID 1 fail to execute a folder, so that the first command need not wait for threads of PID 1, pages that
// it has not touched and the Landlock domain of commands, whose rules are made of the root: the sandbox has the one
// that it will keep. What runs is the stub, which ends; no file of the image is executed.
func (f *creation) rehearse(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTimeout)
	defer cancel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = f.s.guest.Start(ctx, guestapi.Request{Argv: []string{"/"}, Cwd: "/", User: "0:0"},
		[]*os.File{null, null, null})
	var refused *guestapi.StartError
	if errors.As(err, &refused) {
		return nil
	}
	return fmt.Errorf("PID 1 was to execute a folder: %w", cmp.Or(err, errRehearsed))
}

// rehearsePooled rehearses in a sandbox that will wait in a pool, and is as good when that fails.
func (f *creation) rehearsePooled(ctx context.Context) error {
	if !f.s.waits() || len(f.s.folders.Guards) > 0 {
		return nil
	}
	if err := f.rehearse(ctx); err != nil {
		f.m.cfg.Logger.Debug("rehearse the first command", "sandbox", f.s.id, "err", err)
	}
	if f.claimed == nil {
		if err := f.m.Execs.MakeSpare(execBoxOf(f.m, f.s)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

var errRehearsed = errors.New("and did")

// layerIDs says which folders a root's layers are.
func layerIDs(r *spec.Root) ([]workspace.ID, error) {
	ids := make([]workspace.ID, len(r.Lower))
	for i, lower := range r.Lowers() {
		var err error
		if ids[i], err = workspace.Identify(lower); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// errOutdated is why a prepared sandbox is not used.
var errOutdated = errors.New("the image is another one meanwhile")

// takeImage resolves the image of a prepared sandbox, and compares it with what that was given. A layer that was
// removed and made again has the same name: its folder is another, for the mount keeps the inode of the old one.
func (f *creation) takeImage(ctx context.Context) error {
	if err := f.resolve(ctx); err != nil {
		return err
	}
	d, r := f.claimed.prepared, f.s.root
	ids, err := layerIDs(r)
	if err != nil {
		return err
	}
	if r.Dir != d.root.Dir || !slices.Equal(r.Lower, d.root.Lower) || !slices.Equal(ids, d.lower) ||
		!slices.Equal(r.Binds, d.root.Binds) {
		return errOutdated
	}
	return nil
}

// takeFolders finds all there, the limit too.
func (f *creation) takeFolders(context.Context) error {
	f.s.meter.TakeDisk(f.claimed.prepared.disk)
	return nil
}

// takePrepared makes f's sandbox the one that was prepared for it.
func (f *creation) takePrepared(context.Context) error {
	start := time.Now()
	f.s.execs.SetSpare(f.claimed.spare)
	f.s.pidfd, f.s.guest = f.claimed.pidfd, f.claimed.guest
	f.undo.Add(f.claimed.end)
	if err := f.m.cfg.Launcher.Take(f.s.id); err != nil {
		return err
	}
	f.s.setPID(f.claimed.pid)
	egressBox{f.m, f.s}.watchInit()
	f.phases["launch.prepared"] = ms(time.Since(start))
	if f.claimed.prepared.key.shm != f.s.meter.ShmBytes() { // memory has no cgroup
		if err := f.sizeShm(); err != nil {
			return err
		}
	}
	f.phases["launch.claim"] = ms(time.Since(start))
	return nil
}

// readPrepared takes what was read of PID 1 when it was prepared, and reads the rest.
func (f *creation) readPrepared(context.Context) error {
	walls := f.claimed.prepared.walls
	if err := isolation.AddNetwork(&walls, f.proc(), f.netns, f.s.net); err != nil {
		return err
	}
	return f.isolated(walls, f.claimed.prepared.label)
}
