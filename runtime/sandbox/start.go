package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// origin is what a creation goes on from.
type origin struct {
	root   *Root         // of the image, whatever its name means now
	layers []string      // of the shelf, top-most first
	base   diskuse.Usage // that they take
	box    *Sandbox      // to be started again; nil for a fork
	built  bool          // by a template: a sandbox that is new but for its files
	record api.Sandbox   // what the image said
	over   string        // of a fork: what was written to overlays other than the root, by their number
	// folders are those of the host's that were mounted, by target; nil when nobody has noted them.
	folders map[string]workspace.ID
}

// starting says that a sandbox that was stopped goes on.
func (f *creation) starting() bool { return f.req.origin != nil && f.req.origin.box != nil }

// resolveAgain is resolve for what had its image already.
func (f *creation) resolveAgain(ctx context.Context) error {
	o := f.req.origin
	root := *o.root
	if root.Ref == hostImage { // the machine may have changed
		now, err := f.m.cfg.Images.Resolve(ctx, hostImage, "", "", f.req.Progress)
		if err != nil {
			return err
		}
		root = *now
	} else {
		release, err := f.m.cfg.Images.Hold(root.Lower)
		if err != nil {
			return err
		}
		root.Release = release
	}
	f.undo.Add(f.s.lease(func() error { root.Release(); return nil }))
	held, err := f.m.cfg.Shelf.Use(o.layers)
	if err != nil {
		return fmt.Errorf("use a layer of a snapshot: %w", err)
	}
	f.undo.Add(f.s.lease(func() error { shelf.CloseAll(held); return f.m.collectOf(o.layers) }))
	f.s.root, f.s.layers, f.s.base = &root, o.layers, o.base
	if o.built {
		f.described(&root)
		return nil
	}
	r := &f.s.record
	r.Image, r.Digest, r.Note, r.Entry, r.Command = o.record.Image, o.record.Digest, o.record.Note, o.record.Entry,
		o.record.Command
	r.Workdir, r.User = o.record.Workdir, o.record.User
	r.StopSignal = orElse(f.req.Spec.StopSignal, o.record.StopSignal)
	return nil
}

// layerFolders are the folders of a sandbox's layers of the shelf.
func (m *Manager) layerFolders(s *Sandbox) (list []string) {
	for _, id := range s.layers {
		list = append(list, filepath.Join(m.cfg.Shelf.LayerDir(id), "root"))
	}
	return list
}

// oldFolders makes those of creation.folders that a stopped sandbox has of its own fit for another start: its limit, an
// empty work folder, and the folders that our mounts need, whatever the sandbox has left in their places.
func (f *creation) oldFolders() error {
	fsDir := filepath.Join(f.s.dir, "fs")
	own := len(f.m.Workspaces.VolumeFolders(f.s.user, &f.s.spec)) == 0 && len(f.s.layers) == 0 &&
		meter.WantsOwn(f.s.dir, &f.s.record.Limits)
	if own {
		if err := errors.Join(os.Rename(fsDir, filepath.Join(f.s.dir, ownCopy)), os.Mkdir(fsDir, 0o700)); err != nil {
			return diskError("make the sandbox's folder", err)
		}
	}
	if err := f.limitDisk(); err != nil {
		return err
	}
	if own {
		if _, err := copyInto(context.Background(), filepath.Join(f.s.dir, ownCopy), fsDir); err != nil {
			return err
		}
	}
	// A volatile overlay says so in its work folder, and is not mounted again; this kernel has written nothing half.
	work := filepath.Join(fsDir, "work")
	if err := errors.Join(removeAll(work), os.Mkdir(work, 0o700)); err != nil {
		return diskError("make the sandbox's folder", err)
	}
	upper, err := os.OpenFile(filepath.Join(fsDir, "upper"), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer upper.Close()
	for _, d := range mountFolders {
		if err := needFolder(upper, d); err != nil {
			return fmt.Errorf("make /%s again: %w", d.name, err)
		}
	}
	return nil
}

// mountFolders are those of ownFolders that something is mounted on.
var mountFolders = []folder{{"proc", 0o755}, {"dev", 0o755}, {"sys", 0o755}}

// needFolder makes a folder below top unless there is one. The sandbox has chosen what is there; no link is followed.
func needFolder(top *os.File, d folder) error {
	parent, err := sys.OpenBeneath(int(top.Fd()), path.Dir(d.name), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base := path.Base(d.name)
	var st unix.Stat_t
	err = unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err == nil {
		err = unix.Unlinkat(parent, base, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Mkdirat(parent, base, 0o755); err != nil {
		return err
	}
	return unix.Fchmodat(parent, base, uint32(d.mode.Perm()), 0) // a folder that was just made, by us
}

// copyInto copies what is in a folder into another one, which is empty.
func copyInto(ctx context.Context, from, to string) (diskuse.Usage, error) {
	src, err := os.OpenFile(from, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return diskuse.Usage{}, err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return diskuse.Usage{}, err
	}
	defer dst.Close()
	used, err := treecopy.Tree(ctx, src, dst)
	if errors.Is(err, treecopy.ErrTooDeep) {
		err = api.Errorf(api.ResourceExhausted, "copy the sandbox's files: %w", err).WithHint("remove folders from it")
	}
	return used, diskError("copy the sandbox's files", err)
}

// StartSandbox starts a sandbox that was stopped, or has ended otherwise. One that runs is left alone.
func (m *Manager) StartSandbox(ctx context.Context, by Caller, p api.StartParams) (api.Sandbox, error) {
	s, done, err := m.takeTurn(ctx, p.Sandbox)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	switch s.state() {
	case api.Running, api.Paused:
		return s.Record(), nil
	case api.Creating, api.Waiting:
		return api.Sandbox{}, s.mustRun()
	}
	if !s.stopped {
		if s, err = m.keepStopped(s, "stopped"); err != nil {
			return api.Sandbox{}, err
		}
	}
	sp, err := workspace.HandOver(s.specNow(), p.Folders)
	if err != nil {
		return api.Sandbox{}, err
	}
	return m.startStopped(ctx, s, CreateRequest{Spec: sp, FDs: by.FDs, User: s.user, Conn: by.Conn})
}

// startStopped makes a sandbox of one that is stopped, and of which the caller has the turn. When it fails, it is
// stopped as before.
func (m *Manager) startStopped(ctx context.Context, old *Sandbox, req CreateRequest) (api.Sandbox, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })()
	if req.Progress == nil {
		req.Progress = func(api.Progress) {}
	}
	req.origin = &origin{root: old.root, layers: old.layers, base: old.base, box: old, record: old.Record(),
		folders: old.folders.IDs}
	s, err := m.readmit(old, &req)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer m.wg.Done()
	m.audit(ctx, s, "", api.AuditStarted, nil, 0)
	f := &creation{m: m, req: &req, s: s, phases: map[string]float64{}}
	if err = f.run(ctx); err == nil {
		if err = m.begun(s); err != nil {
			err = errors.Join(err, s.destroy())
		}
	}
	if err != nil {
		m.mu.Lock()
		m.doneCreating(req.Conn)
		m.mu.Unlock()
		m.exchange(s, old)
		m.saveEnd(old) // what the creation has written says something else
		return api.Sandbox{}, withCause(ctx, err)
	}
	if err := errors.Join(old.release(), m.cfg.Images.Unpin(boxPin(s.id))); err != nil {
		m.cfg.Logger.Warn("let go of what kept a stopped sandbox", "sandbox", s.id, "err", err)
	}
	old.stopTTL()
	m.Execs.Forget(old.execs)
	s.mu.Lock()
	s.record.PhasesMS = f.phases
	record := s.record
	s.mu.Unlock()
	m.admit(s)
	record.State = api.Running
	if s.templated.starts() {
		if err := m.startUp(ctx, s); err != nil {
			return api.Sandbox{}, fmt.Errorf("sandbox %s runs, but what its template starts does not: %w", s.id,
				withCause(ctx, err))
		}
		record = s.Record()
	}
	return record, nil
}

// begun takes the mark from a folder: from now on it ends with its sandbox.
func (m *Manager) begun(s *Sandbox) error {
	if err := os.Remove(filepath.Join(s.dir, shelf.Mark)); err != nil {
		return err
	}
	return errors.Join(removeAll(filepath.Join(s.dir, ownCopy)), removeAll(filepath.Join(s.dir, outputDir)))
}

func (s *Sandbox) stopTTL() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl != nil {
		s.ttl.Stop()
	}
}

// readmit puts a new sandbox in the place of one that is stopped.
func (m *Manager) readmit(old *Sandbox, req *CreateRequest) (*Sandbox, error) {
	record := old.Record()
	record.State, record.Kept, record.Reason = api.Creating, false, ""
	s := m.newSandbox(record, req.Spec, old.user)
	s.conn, s.turn, s.templated = req.Conn, old.turn.shared(), old.templated
	if record.Network.Mode != api.NetNone {
		if err := s.seen.Recall(old.wantedFile()); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, ErrClosed
	}
	if err := m.checkQuota(s.user, &record.Limits, old, 1); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	m.creating[s.conn]++
	m.wg.Add(1)
	m.mu.Unlock()
	m.exchange(old, s)
	return s, nil
}
