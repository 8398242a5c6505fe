package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/internal/undo"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// Undo: before each call that may change files they are kept as they are, in a folder of the sandbox's own
// (internal/undo). See DESIGN.md, "Undo".

// undoDir is that folder.
const undoDir = "undo"

// Call is one that may change files.
type Call struct {
	ID, Tool string
	Paths    []string // that it names
}

// maxKeeping bounds the checkpoints that are being made at the same time.
const maxKeeping = 2

// maxNamed bounds what is kept of a path that a call names.
const maxNamed = 256

// NewCall makes the id of a call.
func NewCall() string { return newID("tc_") }

// Checkpoint keeps what the files of a sandbox are, before a call, if its spec says so. When that cannot be done the
// call must not be made.
func (m *Manager) Checkpoint(ctx context.Context, ref string, c Call) (made bool, err error) {
	s, err := m.find(ref)
	if err != nil || !s.spec.Undo {
		return false, err
	}
	if leave, err := m.enter(ctx, s); err == nil { // a patch that was left half done is taken back before, and not kept
		leave()
	}
	s, done, err := m.takeTurn(ctx, ref)
	if err != nil {
		return false, err
	}
	defer done()
	if st := s.state(); st != api.Running && st != api.Paused {
		return false, s.mustRun()
	}
	keep := undo.Checkpoint{Call: c.ID, Tool: c.Tool}
	for _, p := range c.Paths[:min(len(c.Paths), api.MaxCheckpointPaths)] {
		keep.Paths = append(keep.Paths, excerpt.Valid([]byte(p[:min(len(p), maxNamed)])))
	}
	return true, m.checkpoint(ctx, s, keep, "")
}

// checkpoint takes one of a sandbox whose turn the caller has. The one with the id pinned does not make room for it.
func (m *Manager) checkpoint(ctx context.Context, s *Sandbox, c undo.Checkpoint, pinned string) error {
	h, err := m.historyOf(s)
	if err != nil {
		return err
	}
	c.ID, c.Time = newID("cp_"), time.Now().UTC().Truncate(time.Millisecond)
	w := undo.Request{Limit: undoLimit(s), Pinned: pinned}
	if pinned != "" { // for a moment both are there
		w.Limit = w.Limit.Add(w.Limit)
	}
	select {
	case m.keeping <- struct{}{}:
		defer func() { <-m.keeping }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err = m.quiesce(ctx, s, func(changing func(string, uint64) bool) (err error) {
		w.Changing = changing
		if w.Trees, err = upperFolders(filepath.Join(s.dir, "fs")); err != nil {
			return err
		}
		return h.Save(ctx, c, w)
	})
	return withCause(ctx, undoError(s, err))
}

// undoError says what to do about a checkpoint that could not be made.
func undoError(s *Sandbox, err error) error {
	const what = "what the files are before this call could not be kept, so it was not made"
	var known *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, undo.ErrNoRoom), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return api.Errorf(api.ResourceExhausted, "%s: %w", what, err).
			WithHint("tell the user: the disk must have room for a copy of what has changed; hutch exec %s rm FILE makes room without a copy, hutch update --disk SIZE allows more", s.id)
	case errors.Is(err, treecopy.ErrTooMany), errors.Is(err, treecopy.ErrTooDeep):
		return api.Errorf(api.ResourceExhausted, "%s: %w", what, err).
			WithHint("tell the user: hutch exec %s rm -r FOLDER makes room, or a sandbox without undo is needed", s.id)
	case errors.Is(err, treecopy.ErrChanged), errors.Is(err, unix.ENOENT):
		return api.Errorf(api.Unavailable, "%s: %w", what, err).WithHint("try again")
	}
	return api.Errorf(api.Internal, "%s: %w", what, err).WithHint("try again; the daemon's log may say more")
}

// undoLimit is what all checkpoints of a sandbox may take: as much as its files may.
func undoLimit(s *Sandbox) diskuse.Usage {
	l := s.limits()
	return diskuse.Usage{Bytes: cmp.Or(max(0, l.DiskBytes), api.MaxCheckpointBytes),
		Inodes: cmp.Or(max(0, l.Inodes), api.MaxCheckpointInodes)}
}

// upperFolders are those below fsDir, by the names that fs/next has for them.
func upperFolders(fsDir string) (map[string]string, error) {
	entries, err := os.ReadDir(fsDir)
	if err != nil {
		return nil, err
	}
	trees := map[string]string{}
	for _, e := range entries {
		switch {
		case e.Name() == "upper":
			trees["upper"] = filepath.Join(fsDir, "upper")
		case isIndex(e.Name()):
			trees[e.Name()] = filepath.Join(fsDir, e.Name(), "upper")
		}
	}
	return trees, nil
}

// historyOf reads the checkpoints of a sandbox whose turn the caller has. Those that cannot be read, after a power cut
// for example, are given up.
func (m *Manager) historyOf(s *Sandbox) (*undo.Store, error) {
	if s.history != nil {
		return s.history, nil
	}
	dir := filepath.Join(s.dir, undoDir)
	h, err := undo.Open(dir)
	if err != nil {
		m.cfg.Logger.Warn("read the checkpoints of a sandbox; they are given up", "sandbox", s.id, "err", err)
		if err = removeAll(dir); err == nil {
			h, err = undo.Open(dir)
		}
	}
	if err != nil {
		return nil, diskError("keep checkpoints", err)
	}
	s.history = h
	return h, nil
}

// needsUndo refuses a sandbox without checkpoints.
func (s *Sandbox) needsUndo() error {
	if s.spec.Undo {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s keeps no checkpoints", s.id).
		WithHint("make it with undo: hutch create --undo, hutch mcp --undo, undo of sandbox.create")
}

// volumeTargets are where a sandbox has volumes, which checkpoints do not cover.
func volumeTargets(sp *api.Spec) (targets []string) {
	for i := range sp.Mounts {
		if mt := &sp.Mounts[i]; mt.Volume != "" && mt.Mode != api.ModeOverlay {
			targets = append(targets, mt.Target)
		}
	}
	return targets
}

// Checkpoints lists a sandbox's, oldest first.
func (m *Manager) Checkpoints(ctx context.Context, ref string) (out api.Checkpoints, err error) {
	s, done, err := m.takeTurn(ctx, ref)
	if err != nil {
		return out, err
	}
	defer done()
	if err := s.needsUndo(); err != nil {
		return out, err
	}
	h, err := m.historyOf(s)
	if err != nil {
		return out, err
	}
	list, undone, total := h.List()
	out = api.Checkpoints{Checkpoints: []api.Checkpoint{}, TotalBytes: total.Bytes, NotCovered: volumeTargets(&s.spec)}
	for _, c := range list {
		out.Checkpoints = append(out.Checkpoints, api.Checkpoint{
			ID: c.ID, Call: c.Call, Tool: c.Tool, Time: c.Time, Bytes: c.Added.Bytes, Inodes: c.Added.Inodes,
			Paths: c.Paths, Undone: undone[c.Call],
		})
	}
	return out, nil
}
