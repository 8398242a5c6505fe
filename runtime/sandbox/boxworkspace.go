package sandbox

import (
	"context"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// workspacesHost is the Manager as package workspace uses it.
type workspacesHost struct{ m *Manager }

func (h workspacesHost) Find(ref string) (workspace.Sandbox, error) {
	s, err := h.m.find(ref)
	return workspaceBox{h.m, s}, err
}

func (h workspacesHost) All() []workspace.Sandbox {
	return h.those(func(*Sandbox) bool { return true })
}

func (h workspacesHost) NotEnded() []workspace.Sandbox {
	return h.those(func(s *Sandbox) bool { return !s.stopped && s.state() != api.Failed })
}

func (h workspacesHost) those(which func(*Sandbox) bool) (list []workspace.Sandbox) {
	for _, s := range h.m.all() {
		if which(s) {
			list = append(list, workspaceBox{h.m, s})
		}
	}
	return list
}

// workspaceBox is a sandbox as package workspace uses it.
type workspaceBox struct {
	m *Manager
	s *Sandbox
}

func (b workspaceBox) ID() string              { return b.s.id }
func (b workspaceBox) Dir() string             { return b.s.dir }
func (b workspaceBox) User() uint32            { return b.s.user }
func (b workspaceBox) Spec() *api.Spec         { return &b.s.spec }
func (b workspaceBox) Folders() *workspace.Set { return &b.s.folders }

func (b workspaceBox) Still(ctx context.Context, reason string, use func() error) error {
	return b.m.Pauses.Still(ctx, pauseBox(b), reason, use)
}

func (b workspaceBox) Mounted() error {
	if b.s.stopped {
		return b.s.mustRun()
	}
	return nil
}

func (b workspaceBox) Audit(ctx context.Context, kind api.AuditKind, w api.AuditWorkspace) {
	b.m.audit(ctx, b.s, "", kind, w, 0)
}

// workspaceCreation is a creation as package workspace uses it.
type workspaceCreation struct{ f *creation }

func (c workspaceCreation) Undo(back func() error)      { c.f.undo.Add(back) }
func (c workspaceCreation) Lease(giveBack func() error) { c.f.undo.Add(c.f.s.lease(giveBack)) }

func (c workspaceCreation) Tell(text string) { c.f.s.addNote(text) }

func (c workspaceCreation) Copy(from, to string) error {
	_, err := c.f.m.Keep.Copy(context.Background(), from, to)
	return err
}

func (c workspaceCreation) DiskError(op string, err error) error { return diskError(op, err) }

// addNote adds a sentence to the note of the record.
func (s *Sandbox) addNote(text string) {
	s.note(func(r *api.Sandbox) {
		if r.Note != "" {
			text = r.Note + "; " + text
		}
		r.Note = text
	})
}

// mounts attaches the workspace and the other host folders below the sandbox's
// own folder.
func (f *creation) mounts(ctx context.Context) (err error) {
	s, sp, o := f.s, &f.req.Spec, f.req.origin
	r := workspace.Request{
		ID: s.id, Dir: s.dir, User: s.user, Spec: sp, FDs: f.req.FDs, RunAs: s.record.User, Layers: s.root.Lowers(),
		MemoryBytes: s.meter.MemoryFolder(), Again: f.starting(), Folders: &s.folders,
	}
	if o != nil {
		r.Before, r.Over = o.Folders, o.Over
	}
	a := f.m.Workspaces.Attaching(workspaceCreation{f}, r)
	if f.binds, err = a.Attach(ctx); err != nil {
		return err
	}
	// What volumes hold counts, and is not the doing of the first command.
	if err := s.meter.Begin(ctx, o != nil && !o.Built); err != nil {
		return err
	}
	if sp.WritableUsr {
		return f.writableUsr(a)
	}
	return nil
}

// writableUsr puts an overlay in the place of the host's /usr.
func (f *creation) writableUsr(a *workspace.Attaching) error {
	at := slices.IndexFunc(f.s.root.Binds, func(b spec.Bind) bool { return b.Target == "/usr" })
	if f.s.root.WritableUsr == nil || at < 0 {
		return api.Errorf(api.InvalidArgument,
			"writable_usr: the image %s has a /usr of its own, which can be written to", f.s.root.Ref).
			WithField("writable_usr").WithHint("leave it out; it is for the image %s, whose /usr is the host's",
			spec.HostImage)
	}
	lower, err := f.s.root.WritableUsr()
	if err != nil {
		return err
	}
	merged, err := a.Overlay(append(f.m.Keep.Usr(f.s.kept.Layers), lower...)...)
	if err != nil {
		return api.Errorf(api.FailedPrecondition, "writable_usr: %w", err).WithField("writable_usr").
			WithHint("a mount below /usr keeps the kernel from it: findmnt -R /usr shows which")
	}
	// The binds are the image's; what hides parts of /usr is one of the layers.
	binds := slices.DeleteFunc(slices.Clone(f.s.root.Binds), func(b spec.Bind) bool { return below(b.Target, "/usr") })
	f.s.root.Binds = slices.Insert(binds, min(at, len(binds)), spec.Bind{Source: merged, Target: "/usr"})
	return nil
}

// below reports whether name is dir or lies below it.
func below(name, dir string) bool {
	name, dir = path.Clean(name), path.Clean(dir)
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// makeVolumes makes the folders that the image names as volumes and does not have. What cannot be made is noted.
func (f *creation) makeVolumes(ctx context.Context) {
	m, s := f.m, f.s
	note := workspace.ImageVolumes(ctx, s.root.Config.Volumes, s.dir, &s.spec,
		func(ctx context.Context, at string) error { return m.Files.MakeFolderIn(ctx, filesBox{m, s}, at) })
	if note != "" {
		s.addNote(note)
	}
}

// moves is what PID 1 moves in the sandbox's overlays.
func (s *Sandbox) moves() workspace.Moves {
	return workspace.Moves{ID: s.id, Spec: &s.spec, PID1: s.guest}
}

// guards is what guards this host can keep.
func (h *Host) guards() guard.Host {
	return guard.Host{LandlockABI: h.LandlockABI, LandlockReason: h.LandlockReason}
}

// refusesNew reports whether guarded names that are not there cannot be made in some folder of sp.
func refusesNew(sp *api.Spec) bool { return guard.RefusesNew(workspace.Of(sp)) }

// overlays reports whether PID 1 moves folders for commands: in overlays of folders, unless it is under a profile that
// may refuse what that takes.
func overlays(sp *api.Spec) bool { return sp.SeccompProfile == "" && workspace.HasOverlay(sp) }

// defaultGuard is what PID 1 of a sandbox that is launched ahead does not make: the guard of a workspace for which
// nothing is said about it.
var defaultGuard = guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: workspace.Target}}}

// guest is what PID 1 is not to make for commands; nil when they make names themselves.
func (f *creation) guest() *guestapi.Guard {
	if f.guarded {
		return &defaultGuard
	}
	return f.s.folders.Guards.Guest(workspace.Of(&f.req.Spec))
}

// guardClaimed tells PID 1 of a sandbox that was launched ahead what is guarded now, if that is not what it was set up
// with.
func (f *creation) guardClaimed(ctx context.Context) error {
	g := f.guest()
	if g == nil || reflect.DeepEqual(g, &defaultGuard) {
		return nil
	}
	return f.s.guest.Guard(ctx, g)
}

// initArg is the argument of PID 1: what it has to watch from the start.
func (f *creation) initArg() string {
	var args []string
	if f.req.Debug {
		args = append(args, guestapi.ArgFiles)
	}
	if f.guarded || refusesNew(&f.req.Spec) {
		args = append(args, guestapi.ArgMakes)
	} else if f.moves || overlays(&f.req.Spec) {
		args = append(args, guestapi.ArgMoves)
	}
	if f.m.cfg.Host.EmulatesIDs(f.req.Spec.IDs) {
		args = append(args, guestapi.ArgIDs)
	}
	return strings.Join(args, guestapi.ArgAnd)
}
