package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// origin is what a creation goes on from.
type origin struct {
	keep.Origin
	box *Sandbox // to be started again; nil for a fork
}

// starting says that a sandbox that was stopped goes on.
func (f *creation) starting() bool { return f.req.origin != nil && f.req.origin.box != nil }

// resolveAgain is resolve for what had its image already.
func (f *creation) resolveAgain(ctx context.Context) error {
	o := f.req.origin
	root, err := f.m.Keep.Again(ctx, o.Root, f.req.Progress)
	if err != nil {
		return err
	}
	f.undo.Add(f.s.lease(func() error { root.Release(); return nil }))
	unused, err := f.m.Keep.Use(o.Layers)
	if err != nil {
		return fmt.Errorf("use a layer of a snapshot: %w", err)
	}
	f.undo.Add(f.s.lease(unused))
	f.s.root, f.s.kept = root, keep.Files{Layers: o.Layers, Base: o.Base}
	if o.Built {
		f.described(root)
		return nil
	}
	was := &o.Record
	f.s.note(func(r *api.Sandbox) {
		r.Image, r.Digest, r.Note, r.Entry, r.Command = was.Image, was.Digest, was.Note, was.Entry, was.Command
		r.Workdir, r.User = was.Workdir, was.User
		r.StopSignal = orElse(f.req.Spec.StopSignal, was.StopSignal)
	})
	return nil
}

// oldFolders makes those of creation.folders that a stopped sandbox has of its own fit for another start: its limit, an
// empty work folder, and the folders that our mounts need, whatever the sandbox has left in their places.
func (f *creation) oldFolders() error {
	own := len(f.m.Workspaces.VolumeFolders(f.s.user, &f.s.spec)) == 0 && len(f.s.kept.Layers) == 0 &&
		meter.WantsOwn(f.s.dir, &f.s.record.Limits)
	if own {
		if err := f.m.Keep.SetAside(f.s.dir); err != nil {
			return err
		}
	}
	if err := f.limitDisk(); err != nil {
		return err
	}
	if own {
		if err := f.m.Keep.FillOwn(f.s.dir); err != nil {
			return err
		}
	}
	return f.m.Keep.Renew(f.s.dir)
}

// start makes a sandbox of one that is stopped, and of which the caller has the turn. When it fails, it is stopped as
// before.
func (b keepBox) start(ctx context.Context, req CreateRequest) (api.Sandbox, error) {
	m, old := b.m, b.s
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(context.Cause(m.ctx)) })()
	if req.Progress == nil {
		req.Progress = func(api.Progress) {}
	}
	req.origin = &origin{keep.Origin{Root: old.root, Layers: old.kept.Layers, Base: old.kept.Base,
		Record: old.Record(), Folders: old.folders.IDs}, old}
	s, err := b.readmit(&req)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer m.wg.Done()
	m.audit(ctx, s, "", api.AuditStarted, nil, 0)
	f := &creation{m: m, req: &req, s: s, phases: map[string]float64{}}
	if err = f.run(ctx); err == nil {
		if err = begun(m.Keep, s); err != nil {
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
	if err := errors.Join(old.release(), m.Keep.Unpin(s.id)); err != nil {
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
		if err := startUp(ctx, m, s); err != nil {
			return api.Sandbox{}, fmt.Errorf("sandbox %s runs, but what its template starts does not: %w", s.id,
				withCause(ctx, err))
		}
		record = s.Record()
	}
	return record, nil
}

// begun takes the mark from a folder: from now on it ends with its sandbox.
func begun(k *keep.Keep, s *Sandbox) error {
	if err := k.Begun(s.dir); err != nil {
		return err
	}
	return removeAll(filepath.Join(s.dir, outputDir))
}

func (s *Sandbox) stopTTL() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl != nil {
		s.ttl.Stop()
	}
}

// readmit puts a new sandbox in the place of one that is stopped.
func (b keepBox) readmit(req *CreateRequest) (*Sandbox, error) {
	m, old := b.m, b.s
	record := old.Record()
	record.State, record.Kept, record.Reason = api.Creating, false, ""
	s := m.newSandbox(record, req.Spec, old.user)
	s.conn, s.turn, s.templated = req.Conn, old.turn, old.templated
	if record.Network.Mode != api.NetNone {
		if err := s.seen.Recall(old.dir); err != nil {
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
