package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// adoption is the takeover of one sandbox, as creation is the making of one: the sandbox, what gives back what the
// steps have taken, and what they hand to each other.
type adoption struct {
	m    *Manager
	held *launchapi.HeldSandbox
	dir  string
	s    *Sandbox
	own  cleanup.Stack

	from   saved
	unused func() error // gives back the layers
	execs  []exec.Held
	guests map[uint64]*guestapi.Exec // by their ids at PID 1
}

// adoptionSteps come before the sandbox is listed, in order. Each pushes its undo.
var adoptionSteps = []func(*adoption, context.Context) error{
	(*adoption).read,
	(*adoption).restore,
	(*adoption).hold,
	(*adoption).network,
	(*adoption).enforce,
	(*adoption).greet,
}

// run takes over the sandbox. It owns what it returns no error for.
func (a *adoption) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	defer a.own.Run(&err)
	a.own.Add(func() error { a.held.Close(); return nil })
	for _, step := range adoptionSteps {
		if err := step(a, ctx); err != nil {
			return err
		}
	}
	a.m.audit(ctx, a.s, "", api.AuditResumed, nil, 0)
	a.own.Release() // from here on removal takes care of everything
	a.s.destroy = a.undo()
	a.list()
	a.goOn(ctx)
	return nil
}

// read reads the record.
func (a *adoption) read(context.Context) error {
	data, err := os.ReadFile(filepath.Join(a.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return errNoRecord
	}
	if err != nil {
		return err
	}
	if a.from, err = parseRecord(data, a.held.ID); err != nil {
		return err
	}
	if a.from.Unready {
		return errUnready
	}
	if shelf.IsMarked(a.dir) {
		return errors.New("it was being stopped or started, and is stopped now")
	}
	return nil
}

// restore makes the sandbox that the record speaks of.
func (a *adoption) restore(context.Context) error {
	from, h := &a.from, a.held
	s := a.m.newSandbox(from.Record, from.Spec, from.User)
	a.s = s
	s.pidfd, s.execs = h.Pidfd, exec.NewSet(from.Clock)
	s.root, s.templated, s.kept, s.exposed = from.Root, from.Template, from.files(), from.Ports
	s.orphaned = from.Spec.Owner == api.OwnerConnection || from.Spec.Scope != nil &&
		from.Spec.Scope.Kind == api.ScopeSession
	s.meter.AdoptDisk(diskPlace(a.m.Workspaces, s), from.Project)
	if s.record.State == api.Creating {
		s.record.State = api.Running
		if s.record.Pool != "" { // nobody has acquired it
			s.record.State = api.Waiting
		}
	}
	if s.record.State == api.Running || s.record.State == api.Paused || s.record.State == api.Waiting {
		s.record.PID = h.PID
	}
	return s.folders.Adopt(&s.spec, a.dir)
}

// hold keeps the image, and the layers of a fork.
func (a *adoption) hold(context.Context) (err error) {
	s := a.s
	if s.root.Release, err = a.m.cfg.Images.Hold(s.root.Lower); err != nil {
		return err
	}
	a.own.Add(func() error { s.root.Release(); return nil })
	if a.unused, err = a.m.Keep.Use(s.kept.Layers); err == nil {
		a.own.Add(a.unused)
	}
	return err
}

// network takes over the network. In mode none it has lookups refused and told again: without, they fail as they would
// have, and who runs the sandbox hears less of it.
func (a *adoption) network(context.Context) (err error) {
	s, networks := a.s, a.m.cfg.Networks
	if s.record.Network.Mode != api.NetNone {
		if s.net, err = networks.Adopt(s.id, a.dir, s.record.Network.NetPolicy); err != nil {
			return err
		}
		a.own.Add(s.net.Close)
		return s.seen.Recall(a.dir)
	}
	s.execs.NewNetwork(refusals.Routeless(a.held.PID))
	ns, err := os.Open(a.m.cfg.Kernel.Proc(a.held.PID) + "/ns/net")
	if err == nil {
		var plain Namespace
		if plain, err = networks.AdoptPlain(s.id, ns); err == nil {
			s.plain = plain
			a.own.Add(plain.Close)
			return nil
		}
	}
	a.m.cfg.Logger.Warn("lookups of a sandbox without a network are not told", "sandbox", s.id, "err", err)
	return nil
}

// enforce puts the policies in force in the kernel again.
func (a *adoption) enforce(context.Context) (err error) {
	s := a.s
	if s.enforced, err = a.m.cfg.Networks.Enforce(s.id, s.cgroup, s.net); err != nil {
		return err
	}
	a.own.Add(s.enforced.Close)
	s.record.Network.Enforcement = a.m.cfg.Host.Enforcement(s.record.Network.NetPolicy, s.net)
	return a.m.Egress.Adopt(egressBox{a.m, s})
}

// greet gets in step with PID 1, which says what became of the commands.
func (a *adoption) greet(ctx context.Context) (err error) {
	if a.execs, err = exec.ReadHeld(a.held.Execs); err != nil {
		return err
	}
	var ids []uint64
	for i := range a.execs {
		if !a.execs[i].Ended() {
			ids = append(ids, a.execs[i].Guest())
		}
	}
	conn, err := a.m.cfg.Kernel.Channel(a.held.Guest)
	if err != nil {
		return err
	}
	a.s.guest, a.guests, err = guestapi.Resume(ctx, conn, ids)
	return err
}

// list makes the sandbox one that is found.
func (a *adoption) list() {
	m, s := a.m, a.s
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(s, m.byName[s.name])
	if sc := m.scopeOf(s); sc != nil {
		sc.s = s
	}
}

// goOn goes on with what it was doing, commands first, and what was to happen to it.
func (a *adoption) goOn(ctx context.Context) {
	m, s := a.m, a.s
	m.Ports.Adopt(portsBox{m, s, a.held.PID}, s.exposed)
	s.servers.Know(serversBox{m, s})
	egressBox{m, s}.watchInit()
	for i := range a.execs {
		a.exec(ctx, &a.execs[i])
	}
	if s.state() == api.Paused {
		if err := m.Pauses.Repause(ctx, pauseBox{m, s}); err != nil {
			m.cfg.Logger.Error("pause again a sandbox that was paused", "sandbox", s.id, "err", err)
		}
	}
	a.startClocks()
	m.watchPID1(s)
	s.meter.Watch()
}

// startClocks starts those of an adopted sandbox, as admit does for a new one.
func (a *adoption) startClocks() {
	if until := a.s.Record().Expires; until != nil {
		a.s.setTTL(a.m, *until)
	}
	a.s.rearmIdle(a.m)
	a.m.awaitClaim(a.s)
}

// exec takes over one exec, and the shell that it may be.
func (a *adoption) exec(ctx context.Context, h *exec.Held) {
	r := a.m.Execs.Adopt(ctx, execBoxOf(a.m, a.s), h, guestExec{a.guests[h.Guest()]})
	switch {
	case r == nil || r.Shell() == "":
	case h.Ended():
		a.m.Shells.Adopt(r, h.Note(), nil)
	default:
		a.m.Shells.Adopt(r, h.Note(), r.Channel())
	}
}

// undo undoes what the creation has done, which a hutchd before did.
func (a *adoption) undo() func() error {
	m, s := a.m, a.s
	var undo cleanup.Stack
	lease := func(giveBack func() error) { undo.Add(s.lease(giveBack)) }
	lease(a.unused)
	lease(func() error { s.root.Release(); return nil })
	lease(m.Workspaces.HoldVolumes(workspaceBox{m, s}))
	undo.Add(func() error { return m.removeFolder(s) })
	undo.Add(func() error { s.meter.FreeProject(); return nil })
	undo.Add(func() error { return unmountOld(m.cfg.Kernel, s.dir, "fs") })
	undo.Add(func() error {
		return errors.Join(unmountOld(m.cfg.Kernel, s.dir, about.Folder),
			m.Workspaces.Unmount(s.dir, 2+len(workspace.Of(&s.spec))))
	})
	if s.net != nil {
		lease(s.net.Close)
	}
	if s.plain != nil {
		undo.Add(s.plain.Close)
	}
	if s.cgroup != "" {
		undo.Add(func() error { m.cfg.Cgroups.Forget(s.cgroup); return nil })
	}
	undo.Add(s.pidfd.Close)
	undo.Add(func() error { return destroyInit(context.Background(), m, s) })
	lease(s.enforced.Close)
	undo.Add(s.guest.Close)
	if s.cgroup != "" {
		undo.Add(execBoxOf(m, s).watchLimits())
	}
	return undo.Release()
}
