package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// CreateRequest is a validated request for a sandbox.
type CreateRequest struct {
	Spec     api.Spec
	FDs      packet.Taker
	User     uint32 // whose quotas it counts for
	Conn     uint64 // the connection it came on
	Debug    bool
	Break    *api.Break         // only with Debug
	Progress func(api.Progress) // never nil
	Building bool               // a build's: it is nobody's, and goes with the hutchd that makes it
	Over     string             // with Building: the id of what Keep.SaveBuild has kept, below it
	pool     string             // that it is to wait in, "" for most
	// templated is what its template says beside the spec; nil of most.
	templated *templated
	origin    *origin // what it goes on from; nil for most
	early     *early  // launched for it; nil for most
}

// creation is one create under way: the sandbox, what undoes it, and what its
// steps hand to each other.
type creation struct {
	m    *Manager
	req  *CreateRequest
	s    *Sandbox
	undo cleanup.Stack

	netns  *os.File
	binds  []spec.Bind
	config json.RawMessage // libcontainer's
	filter *os.File        // BPF of the exec filter
	plan   []step          // of its kind
	phases map[string]float64
	steps  []api.DebugStep // of a request that asks for them

	claimed *generic // what becomes the sandbox; nil when one is launched
	generic bool     // one is launched for a later claim
	ahead   bool     // it is claimed before anybody asks
	guarded bool     // by a workspace that refuses what is guarded in each (defaultGuard)
	moves   bool     // folders are moved in overlays (guestapi.ArgMoves)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Create makes a sandbox, or finds the one of its scope, and returns its record when PID 1 waits for commands.
// When it fails, or ctx ends, nothing of it is left.
func (m *Manager) Create(ctx context.Context, req CreateRequest) (api.Sandbox, error) {
	if sc := req.Spec.Scope; sc != nil && sc.Undo { // two ways to say the same
		req.Spec.Scope, req.Spec.Undo = &api.Scope{Kind: sc.Kind, Key: sc.Key}, true
	}
	if err := checkSpec(&req.Spec); err != nil {
		return api.Sandbox{}, err
	}
	uploads := req.Spec.Uploads
	req.Spec.Uploads = nil // what is kept of the sandbox need not hold them
	create := m.createNew
	if req.Spec.Scope != nil {
		create = m.Scopes.create
	}
	r, err := create(ctx, req)
	if err != nil || len(uploads) == 0 {
		return r, err
	}
	if err := m.Files.Upload(ctx, r.ID, uploads); err != nil {
		if !r.Existing {
			m.removeNow(ctx, r.ID)
		}
		return api.Sandbox{}, err
	}
	return r, nil
}

// removeNow removes a sandbox whose creation cannot be completed.
func (m *Manager) removeNow(ctx context.Context, id string) {
	if _, err := m.Remove(context.WithoutCancel(ctx), id); err != nil && api.ErrorCode(err) != api.NotFound {
		m.cfg.Logger.Error("remove a sandbox that could not be completed", "sandbox", id, "err", err)
	}
}

func (m *Manager) createNew(ctx context.Context, req CreateRequest) (api.Sandbox, error) {
	done, err := m.byTemplate(ctx, &req)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	r, err := m.createWhole(ctx, req)
	if err != nil || !req.templated.starts() {
		return r, err
	}
	s, err := m.find(r.ID)
	if err == nil {
		err = startUp(ctx, m, s)
	}
	if err != nil {
		m.removeNow(ctx, r.ID)
		return api.Sandbox{}, withCause(ctx, err)
	}
	return s.Record(), nil
}

// createWhole makes a sandbox of a spec with an image.
func (m *Manager) createWhole(ctx context.Context, req CreateRequest) (api.Sandbox, error) {
	if req.Spec.Network.IsZero() {
		req.Spec.Network = m.settings.Load().Network
	}
	if err := checkSpec(&req.Spec); err != nil {
		return api.Sandbox{}, err
	}
	if err := checkBreak(&req); err != nil {
		return api.Sandbox{}, err
	}
	if text := req.Spec.SeccompProfile; text != "" {
		if err := m.cfg.Seccomp.Check(text); err != nil { // before an image is pulled, as below
			return api.Sandbox{}, err
		}
	}
	if err := m.cfg.Host.CheckLandlock(req.Spec.Landlock); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.cfg.Host.CheckIDs(req.Spec.IDs); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.cfg.Host.guards().Settle(&req.Spec); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.cfg.Host.CheckAppArmor(req.Spec.AppArmor); err != nil {
		return api.Sandbox{}, err
	}
	start := time.Now()
	if err := m.cfg.Networks.Check(req.Spec.Network); err != nil { // before an image is pulled
		return api.Sandbox{}, err
	}
	read := time.Since(start)
	limits, err := m.Meters.Grant(&req.Spec.Limits, req.origin != nil && !req.origin.Built)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer m.trim.Reset(trimAfter)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })()
	var g *generic
	ready := aheadHost{m}.of(&req.Spec)
	if req.fits() {
		var early bool
		if g, early = req.early.Take(ready); !early {
			g, _ = ready.Take(aheadHost{m}.keyOf(&req, &limits.Limits))
		}
	}
	if g == nil {
		go m.cfg.Cgroups.Hasten() // while all is made that PID 1 needs
	}
	record, err := m.create(ctx, &req, limits, g, read)
	if errors.Is(err, errOutdated) {
		record, err = m.create(ctx, &req, limits, nil, read)
	}
	if err == nil {
		ready.Refill()
	}
	return record, err
}

// create makes the sandbox, of g where that is not nil, which it owns. read is what it took to
// read the policy.
func (m *Manager) create(ctx context.Context, req *CreateRequest, limits meter.Granted, g *generic,
	read time.Duration) (api.Sandbox, error) {
	s, err := m.reserve(req, limits, g)
	if g != nil {
		if err != nil {
			g.of.Discard(g)
		}
		g.of.Settled()
	}
	if err != nil {
		return api.Sandbox{}, err
	}
	defer m.wg.Done()
	f := &creation{m: m, req: req, s: s, claimed: g, phases: map[string]float64{"policy": ms(read)}}
	start := time.Now()
	if err := f.run(ctx); err != nil {
		m.drop(s)
		m.audit(ctx, s, "", api.AuditClosed, nil, 0) // should something have been noted
		return api.Sandbox{}, withCause(ctx, err)
	}
	// before anybody can use it, and also of one that will wait in a pool
	if req.origin == nil && len(s.root.Config.Volumes) > 0 {
		f.makeVolumes(ctx)
	}
	f.phases["total"] = ms(time.Since(start))
	s.mu.Lock()
	s.record.PhasesMS = f.phases
	if req.Debug {
		s.record.Debug = f.debugOf()
	}
	record := s.record
	s.record.Debug = nil
	s.mu.Unlock()
	m.created(ctx, s)
	m.admit(s)
	record.State = api.Running
	return record, nil
}

// withCause prefers the reason for a cancellation to what it broke.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (f *creation) resolve(ctx context.Context) error {
	sp := &f.req.Spec
	if f.req.origin != nil {
		return f.resolveAgain(ctx)
	}
	root, err := f.m.cfg.Images.Resolve(ctx, sp.Image, sp.Platform, sp.Pull, f.req.Progress)
	if err != nil {
		return err
	}
	f.undo.Add(f.s.lease(func() error { root.Release(); return nil }))
	f.s.root = root
	f.described(root)
	return nil
}

func (f *creation) network(context.Context) error {
	if f.s.record.Network.Mode != api.NetNone {
		return f.openNetwork(nil)
	}
	ns, err := f.m.cfg.Networks.Plain(f.s.id)
	if err != nil {
		return api.Errorf(api.Internal, "make a network namespace: %w", err).
			WithHint("hutch doctor shows what this machine allows")
	}
	f.netns = ns.File()
	f.undo.Add(ns.Close)
	return nil
}

// openNetwork opens a network in a namespace; nil makes one.
func (f *creation) openNetwork(at Namespace) error {
	n, err := f.m.cfg.Networks.Open(f.s.id, f.s.dir, f.s.record.Network.NetPolicy, at)
	if err != nil {
		return err
	}
	f.s.net, f.netns = n, n.File()
	f.undo.Add(f.s.lease(n.Close)) // what it has to tell comes before the end of the sandbox
	return nil
}

func (f *creation) build(context.Context) error {
	h := &f.m.cfg.Host
	in := spec.Input{
		Hostname: f.s.record.Hostname,
		Rootfs:   filepath.Join(f.s.dir, "root"),
		PtsDir:   filepath.Join(f.s.dir, "pts"),
		Binds:    append(append([]spec.Bind{}, f.s.root.Binds...), f.binds...),
		UIDs:     h.UIDs, GIDs: h.GIDs,
		Sys:        about.Sys(f.s.dir),
		NoFileHard: h.NoFileHard,
		AppArmor:   h.AppArmor,
		ShmBytes:   f.s.meter.ShmBytes(),
		ReadOnly:   f.req.Spec.ReadOnly,
		Browser:    f.s.record.Seccomp == api.SeccompBrowser,
	}
	in.CgroupPath, in.CgroupV1 = f.s.cgroup, h.CgroupMode == "v1"
	config, err := spec.JSON(in)
	f.config = config
	return err
}

// overlayOf is the root file system.
func (f *creation) overlayOf() launchapi.Overlay {
	fs := filepath.Join(f.s.dir, "fs")
	if f.generic {
		fs = filepath.Join(f.s.dir, base)
	}
	return launchapi.Overlay{
		Dir: f.s.root.Dir, Lower: append(f.m.Keep.Roots(f.s.kept.Layers), f.s.root.Lower...),
		Upper: filepath.Join(fs, "upper"), Work: filepath.Join(fs, "work"),
		Target: filepath.Join(f.s.dir, "root"), Volatile: !f.req.Spec.Keep,
	}
}

func (f *creation) launch(ctx context.Context) error {
	h := &f.m.cfg.Host
	c := launchapi.Create{
		Config: f.config, Overlay: f.overlayOf(), Generic: f.generic,
		RunDir: filepath.Join(f.s.dir, "run"),
		PtsDir: filepath.Join(f.s.dir, "pts"),

		Seccomp: string(f.s.record.Seccomp), SeccompProfile: f.req.Spec.SeccompProfile,
	}
	c.InitArg = f.initArg()
	if h.CgroupV2 {
		c.CgroupV2 = f.s.cgroup
	}
	if f.s.grouped && h.CgroupMode == "v2" {
		c.CgroupMount = h.CgroupMount
	}
	if f.s.cgroup != "" {
		f.undo.Add(func() error { f.m.cfg.Cgroups.Forget(f.s.cgroup); return nil })
	}
	created, err := f.m.cfg.Launcher.Create(ctx, f.s.id, c, f.netns)
	if err != nil {
		return explainLaunch(ctx, err)
	}
	f.s.pidfd = created.Pidfd
	f.undo.Add(created.Pidfd.Close)
	f.filter = created.Filter
	f.undo.Add(func() error {
		// A failed step must leave nothing even when ctx has ended.
		return destroyInit(context.WithoutCancel(ctx), f.m, f.s)
	})
	if created.Ptmx != nil {
		_ = created.Ptmx.Close() // ptys are opened by path, one each
	}
	conn, err := f.m.cfg.Kernel.Channel(created.Guest)
	if err != nil {
		return err
	}
	f.s.guest = guestapi.NewClientOver(conn)
	f.undo.Add(f.s.guest.Close)
	if !f.generic {
		egressBox{f.m, f.s}.watchInit()
	}
	f.s.setPID(created.PID)
	for name, v := range created.Phases {
		f.phases["launch."+name] = v
	}
	return nil
}

// enforce comes before any command: what the kernel does not know reaches nothing.
func (f *creation) enforce(context.Context) error {
	e, err := f.m.cfg.Networks.Enforce(f.s.id, f.s.cgroup, f.s.net)
	if err != nil {
		return err
	}
	f.s.enforced = e
	f.undo.Add(f.s.lease(e.Close))
	return nil
}

// limit puts the limits in force, before the first command. What PID 1 has used until then
// was hutch's own.
func (f *creation) limit(ctx context.Context) error {
	if f.s.cgroup == "" {
		return nil
	}
	if err := f.m.cfg.Cgroups.Limit(f.s.cgroup, meter.OfGroup(f.s.limits())); err != nil {
		return api.Errorf(api.Internal, "set the limits of sandbox %s: %w", f.s.id, err).
			WithHint("`hutch doctor` shows what this machine offers")
	}
	return f.watchLimits(ctx)
}

// watchLimits hears of limits that are met, of one that has them in force.
func (f *creation) watchLimits(context.Context) error {
	if f.s.cgroup != "" {
		f.undo.Add(execBoxOf(f.m, f.s).watchLimits())
	}
	return nil
}

// greet hands PID 1 the filter that every command gets, and the cgroup that they
// are in, and waits until it is ready.
func (f *creation) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	var cgroups *os.File
	if f.s.grouped {
		var err error
		if cgroups, err = f.m.cfg.Cgroups.Mount(f.s.cgroup); err != nil {
			return api.Errorf(api.Internal, "mount the cgroup of sandbox %s: %w", f.s.id, err).
				WithHint("this is a fault of hutch or of this host: `hutch doctor` shows what the host lacks")
		}
		defer cgroups.Close()
	}
	if err := f.s.guest.Setup(ctx, f.filter, cgroups, "", f.m.cfg.Host.LandlockOf(f.req.Spec.Landlock),
		f.guest()); err != nil {
		return api.Errorf(api.Internal, "PID 1 of sandbox %s does not answer: %w", f.s.id, err).
			WithHint("the daemon's log says how far it came")
	}
	return f.rehearsePooled(ctx)
}

// guestTimeout bounds what hutchd waits for PID 1, which answers in microseconds
// unless the machine is overloaded or it is hostile.
const guestTimeout = 30 * time.Second

func (f *creation) save(context.Context) error {
	if ttl := f.s.spec.TTLS; ttl > 0 && !f.s.waits() { // a pull does not count, nor does waiting
		until := time.Now().Add(seconds(ttl)).UTC().Truncate(time.Millisecond)
		f.s.note(func(r *api.Sandbox) { r.Expires = &until })
	}
	err := f.s.save()
	if err == nil && f.s.waits() {
		err = f.s.makeSpare()
	}
	return err
}

func orElse(v, otherwise string) string {
	if v != "" {
		return v
	}
	return otherwise
}
