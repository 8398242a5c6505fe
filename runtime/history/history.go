package history

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/history/undo"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// Call is one that may change files.
type Call struct {
	ID, Tool string
	Paths    []string // that it names
}

// maxNamed bounds what is kept of a path that a call names.
const maxNamed = 256

// NewCall makes the id of a call.
func NewCall() string { return newID("tc_") }

// Checkpoint keeps what the files of a sandbox are, before a call, if its spec says so. When that cannot be done the
// call must not be made.
func (h *History) Checkpoint(ctx context.Context, ref string, call Call) (made bool, err error) {
	s, err := h.sandboxes.Find(ref)
	if err != nil || !s.Spec().Undo {
		return false, err
	}
	if leave, err := s.Enter(ctx); err == nil { // a patch that was left half done is taken back before, and not kept
		leave()
	}
	s, done, err := h.sandboxes.Turn(ctx, ref)
	if err != nil {
		return false, err
	}
	defer done()
	if st := s.Record().State; st != api.Running && st != api.Paused {
		return false, s.MustRun()
	}
	c := undo.Checkpoint{Call: call.ID, Tool: call.Tool}
	for _, p := range call.Paths[:min(len(call.Paths), api.MaxCheckpointPaths)] {
		c.Paths = append(c.Paths, excerpt.Valid([]byte(p[:min(len(p), maxNamed)])))
	}
	return true, h.checkpoint(ctx, s, c, "")
}

// checkpoint takes one of a sandbox whose turn the caller has. The one with the id pinned does not make room for it.
func (h *History) checkpoint(ctx context.Context, s Sandbox, c undo.Checkpoint, pinned string) error {
	store, err := h.storeOf(s)
	if err != nil {
		return err
	}
	c.ID, c.Time = newID("cp_"), time.Now().UTC().Truncate(time.Millisecond)
	w := undo.Request{Limit: undoLimit(s), Pinned: pinned}
	if pinned != "" { // for a moment both are there
		w.Limit = w.Limit.Add(w.Limit)
	}
	select {
	case h.taking <- struct{}{}:
		defer func() { <-h.taking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err = s.Quiesce(ctx, func(standing []int) (err error) {
		if standing != nil {
			w.Changing = mappedBy(standing)
		}
		if w.Trees, err = keep.UpperFolders(filepath.Join(s.Dir(), "fs")); err != nil {
			return err
		}
		return store.Save(ctx, c, w)
	})
	return withCause(ctx, undoError(s.ID(), err))
}

// undoError says what to do about a checkpoint that could not be made.
func undoError(id string, err error) error {
	const what = "what the files are before this call could not be kept, so it was not made"
	var known *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, undo.ErrNoRoom), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return api.Errorf(api.ResourceExhausted, "%s: %w", what, err).
			WithHint("tell the user: the disk must have room for a copy of what has changed; hutch exec %s rm FILE makes room without a copy, hutch update --disk SIZE allows more", id)
	case errors.Is(err, treecopy.ErrTooMany), errors.Is(err, treecopy.ErrTooDeep):
		return api.Errorf(api.ResourceExhausted, "%s: %w", what, err).
			WithHint("tell the user: hutch exec %s rm -r FOLDER makes room, or a sandbox without undo is needed", id)
	case errors.Is(err, treecopy.ErrChanged), errors.Is(err, unix.ENOENT):
		return api.Errorf(api.Unavailable, "%s: %w", what, err).WithHint("try again")
	}
	return api.Errorf(api.Internal, "%s: %w", what, err).WithHint("try again; the daemon's log may say more")
}

// undoLimit is what all checkpoints of a sandbox may take: as much as its files may.
func undoLimit(s Sandbox) diskuse.Usage {
	l := s.Record().Limits
	return diskuse.Usage{Bytes: cmp.Or(max(0, l.DiskBytes), api.MaxCheckpointBytes),
		Inodes: cmp.Or(max(0, l.Inodes), api.MaxCheckpointInodes)}
}

// storeOf reads the checkpoints of a sandbox whose turn the caller has. Those that cannot be read, after a power cut
// for example, are given up.
func (h *History) storeOf(s Sandbox) (*undo.Store, error) {
	set := s.Checkpoints()
	if set.store != nil {
		return set.store, nil
	}
	dir := filepath.Join(s.Dir(), Dir)
	store, err := undo.Open(dir)
	if err != nil {
		h.cfg.Log.Warn("read the checkpoints of a sandbox; they are given up", "sandbox", s.ID(), "err", err)
		if err = rmtree.Path(dir); err != nil {
			err = fmt.Errorf("remove the sandbox's folder: %w", err)
		} else {
			store, err = undo.Open(dir)
		}
	}
	if err != nil {
		return nil, h.cfg.DiskError("keep checkpoints", err)
	}
	set.store = store
	return store, nil
}

// needsUndo refuses a sandbox without checkpoints.
func needsUndo(s Sandbox) error {
	if s.Spec().Undo {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s keeps no checkpoints", s.ID()).
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
func (h *History) Checkpoints(ctx context.Context, ref string) (out api.Checkpoints, err error) {
	s, done, err := h.sandboxes.Turn(ctx, ref)
	if err != nil {
		return out, err
	}
	defer done()
	if err := needsUndo(s); err != nil {
		return out, err
	}
	store, err := h.storeOf(s)
	if err != nil {
		return out, err
	}
	sp := s.Spec()
	list, undone, total := store.List()
	out = api.Checkpoints{Checkpoints: []api.Checkpoint{}, TotalBytes: total.Bytes, NotCovered: volumeTargets(&sp)}
	for _, c := range list {
		out.Checkpoints = append(out.Checkpoints, api.Checkpoint{
			ID: c.ID, Call: c.Call, Tool: c.Tool, Time: c.Time, Bytes: c.Added.Bytes, Inodes: c.Added.Inodes,
			Paths: c.Paths, Undone: undone[c.Call],
		})
	}
	return out, nil
}

// newID makes a short random id: 60 bits in 12 letters.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }

// withCause prefers the reason for a cancellation to what it broke.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
