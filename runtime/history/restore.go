package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history/undo"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// undoneNote is for people.
const undoneNote = "files are those of before the call; processes have ended: commands, shells and the contexts of code.run"

// Restore gives a sandbox the files that it had before a call, in place: the same id, name, policy and
// limits.
func (h *History) Restore(ctx context.Context, p api.CheckpointRestoreParams,
	fds packet.Taker) (out api.CheckpointRestored, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	s, done, err := h.sandboxes.Turn(ctx, p.Sandbox)
	if err != nil {
		return out, err
	}
	defer done()
	c, err := h.checkpointOf(s, p.ToCall)
	if err != nil {
		return out, err
	}
	was := s.Spec()
	sp, err := workspace.HandOver(was, p.Folders)
	if err != nil {
		return out, err
	}
	if st := s.Record().State; (st == api.Running || st == api.Paused) && len(p.Folders) == 0 {
		given, folders, err := workspace.Clone(&was, s.Dir(), sp)
		if err != nil {
			return out, err
		}
		defer folders.Close()
		sp, fds = given, folders
	}
	out.Call, out.ToCall, out.NotCovered = NewCall(), c.Call, volumeTargets(&was)
	if err := h.checkpoint(ctx, s, undo.Checkpoint{Call: out.Call, Tool: api.MethodCheckRestore, Restore: true},
		c.ID); err != nil {
		return out, err
	}
	ctx = context.WithoutCancel(ctx) // or the sandbox would be left stopped
	owner, conn, back := s.HoldOwner()
	sp.Owner = owner
	defer func() { err = errors.Join(err, back()) }()
	grace := 0.0
	if p.TimeoutS != nil {
		grace = *p.TimeoutS
	}
	if s, out.Ended, err = s.Stop(ctx, time.Duration(grace*float64(time.Second)),
		"stopped to be restored"); err != nil {
		return out, err
	}
	out.Ended.Note = undoneNote
	restored := h.putCheckpointBack(ctx, s, c, &out)
	s.Audit(ctx, api.AuditUndone, api.AuditUndo{ToCall: c.Call, Undone: out.Undone})
	out.Sandbox, err = s.Start(ctx, sp, conn, fds)
	switch {
	case restored != nil:
		return out, errors.Join(restored, err) // the files are as they were before
	case err != nil:
		return out, fmt.Errorf("sandbox %s has the files of before %s and is stopped: it could not be started: %w",
			s.ID(), c.Call, err)
	}
	return out, nil
}

// checkpointOf is the checkpoint before a call, or the last one's where call is "".
func (h *History) checkpointOf(s Sandbox, call string) (c undo.Checkpoint, err error) {
	if err := needsUndo(s); err != nil {
		return c, err
	}
	switch s.Record().State {
	case api.Creating, api.Waiting:
		return c, s.MustRun()
	}
	store, err := h.storeOf(s)
	if err != nil {
		return c, err
	}
	c, ok := store.Find(call)
	switch {
	case ok:
		return c, nil
	case call == "":
		return c, api.Errorf(api.NotFound, "there is no call in sandbox %s that could be undone", s.ID()).
			WithField("to_call").
			WithHint("calls of tools and code.run can be, the last %d of them; hutch undo ls %s lists them",
				api.MaxCheckpoints, s.ID())
	}
	return c, api.Errorf(api.NotFound, "no checkpoint of call %q in sandbox %s", call, s.ID()).WithField("to_call").
		WithHint("hutch undo ls %s lists those that there are; the oldest go first", s.ID())
}

// putCheckpointBack gives a stopped sandbox the files of a checkpoint: as putBack, whole or not at all.
func (h *History) putCheckpointBack(ctx context.Context, s Sandbox, c undo.Checkpoint,
	out *api.CheckpointRestored) error {
	store, err := h.storeOf(s)
	if err != nil {
		return err
	}
	_, before, _ := store.List()
	var restored func() error
	err = h.cfg.Files.Replace(s, s.Files().Layers, s.Files().Base, func(next string) (err error) {
		restored, err = store.Rebuild(ctx, c, next)
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(restored(), store.Trim(undoLimit(s))); err != nil {
		return h.cfg.DiskError("note what was undone", err)
	}
	list, after, _ := store.List()
	out.Undone = []string{}
	for i := len(list) - 1; i >= 0; i-- {
		if call := list[i].Call; after[call] && !before[call] {
			out.Undone = append(out.Undone, call)
		}
	}
	return nil
}
