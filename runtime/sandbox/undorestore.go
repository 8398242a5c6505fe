package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/undo"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// undoneNote is for people.
const undoneNote = "files are those of before the call; processes have ended: commands, shells and the contexts of code.run"

// RestoreCheckpoint gives a sandbox the files that it had before a call, in place: the same id, name, policy and
// limits.
func (m *Manager) RestoreCheckpoint(ctx context.Context, p api.CheckpointRestoreParams,
	fds packet.Taker) (out api.CheckpointRestored, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	s, done, err := m.takeTurn(ctx, p.Sandbox)
	if err != nil {
		return out, err
	}
	defer done()
	c, err := m.checkpointOf(s, p.ToCall)
	if err != nil {
		return out, err
	}
	req := CreateRequest{User: s.user, FDs: fds}
	if req.Spec, err = workspace.HandOver(s.specNow(), p.Folders); err != nil {
		return out, err
	}
	if st := s.state(); (st == api.Running || st == api.Paused) && len(p.Folders) == 0 {
		given, folders, err := workspace.Clone(&s.spec, s.dir, req.Spec)
		if err != nil {
			return out, err
		}
		defer folders.Close()
		req.Spec, req.FDs = given, folders
	}
	out.Call, out.ToCall, out.NotCovered = NewCall(), c.Call, volumeTargets(&s.spec)
	if err := m.checkpoint(ctx, s, undo.Checkpoint{Call: out.Call, Tool: api.MethodCheckRestore, Restore: true},
		c.ID); err != nil {
		return out, err
	}
	ctx = context.WithoutCancel(ctx) // or the sandbox would be left stopped
	back := m.owners(s, &req)
	defer func() { err = errors.Join(err, back()) }()
	grace := 0.0
	if p.TimeoutS != nil {
		grace = *p.TimeoutS
	}
	if s, out.Ended, err = m.stopAndKeep(ctx, s, seconds(grace), "stopped to be restored"); err != nil {
		return out, err
	}
	out.Ended.Note = undoneNote
	restored := m.putCheckpointBack(ctx, s, c, &out)
	m.audit(ctx, s, "", api.AuditUndone, api.AuditUndo{ToCall: c.Call, Undone: out.Undone}, 0)
	out.Sandbox, err = m.startStopped(ctx, s, req)
	switch {
	case restored != nil:
		return out, errors.Join(restored, err) // the files are as they were before
	case err != nil:
		return out, fmt.Errorf("sandbox %s has the files of before %s and is stopped: it could not be started: %w",
			s.id, c.Call, err)
	}
	return out, nil
}

// checkpointOf is the checkpoint before a call, or the last one's where call is "".
func (m *Manager) checkpointOf(s *Sandbox, call string) (c undo.Checkpoint, err error) {
	if err := s.needsUndo(); err != nil {
		return c, err
	}
	switch s.state() {
	case api.Creating, api.Waiting:
		return c, s.mustRun()
	}
	h, err := m.historyOf(s)
	if err != nil {
		return c, err
	}
	c, ok := h.Find(call)
	switch {
	case ok:
		return c, nil
	case call == "":
		return c, api.Errorf(api.NotFound, "there is no call in sandbox %s that could be undone", s.id).
			WithField("to_call").
			WithHint("calls of tools and code.run can be, the last %d of them; hutch undo ls %s lists them",
				api.MaxCheckpoints, s.id)
	}
	return c, api.Errorf(api.NotFound, "no checkpoint of call %q in sandbox %s", call, s.id).WithField("to_call").
		WithHint("hutch undo ls %s lists those that there are; the oldest go first", s.id)
}

// putCheckpointBack gives a stopped sandbox the files of a checkpoint: as putBack, whole or not at all.
func (m *Manager) putCheckpointBack(ctx context.Context, s *Sandbox, c undo.Checkpoint,
	out *api.CheckpointRestored) error {
	h, err := m.historyOf(s)
	if err != nil {
		return err
	}
	_, before, _ := h.List()
	var restored func() error
	err = m.replaceFiles(s, s.layers, s.base, func(next string) (err error) {
		restored, err = h.Rebuild(ctx, c, next)
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(restored(), h.Trim(undoLimit(s))); err != nil {
		return diskError("note what was undone", err)
	}
	list, after, _ := h.List()
	out.Undone = []string{}
	for i := len(list) - 1; i >= 0; i-- {
		if call := list[i].Call; after[call] && !before[call] {
			out.Undone = append(out.Undone, call)
		}
	}
	return nil
}

// owners keeps whose a sandbox is while it is stopped for a moment, which else makes it nobody's. What it returns is
// called when it runs again: it removes what nobody wants any more.
func (m *Manager) owners(s *Sandbox, req *CreateRequest) (back func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, owner, orphaned := s.id, s.spec.Owner, s.orphaned
	req.Spec.Owner, req.Conn = owner, s.conn
	m.creating[s.conn]++ // so that the end of the connection is noted
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		gone := m.doneCreating(req.Conn)
		now := m.byID[id]
		if now == nil {
			return nil
		}
		now.orphaned = now.orphaned || orphaned && !gone
		if sc := now.spec.Scope; sc != nil && sc.Kind == api.ScopeSession && len(m.scopeOf(keyOf(now.user, *sc)).
			users) == 0 && !now.orphaned {
			m.removeLocked(now, "the last connection of its session ended")
		} else if gone && owner == api.OwnerConnection {
			m.removeLocked(now, "its owner's connection ended")
		}
		return nil
	}
}
