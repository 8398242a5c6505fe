package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/shelf"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// RestoreSnapshot gives the sandbox that a snapshot was taken of the files of then, in place: the same id, name, policy
// and limits.
func (m *Manager) RestoreSnapshot(ctx context.Context, by Caller, p api.SnapshotRestoreParams) (
	out api.SnapshotRestored, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	sn, err := m.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return out, err
	}
	s, done, err := m.takeTurn(ctx, sn.Sandbox)
	if api.ErrorCode(err) == api.NotFound {
		err = api.Errorf(api.NotFound, "sandbox %s, which snapshot %s was taken of, is gone", sn.Sandbox, sn.ID).
			WithField("snapshot").
			WithHint("make another of it: hutch fork --snapshot %s", sn.ID)
	}
	if err != nil {
		return out, err
	}
	defer done()
	sp, err := workspace.HandOver(s.specNow(), p.Folders)
	if err != nil {
		return out, err
	}
	held, err := m.cfg.Shelf.Use(sn.Layers)
	if err != nil {
		return out, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
	}
	defer shelf.CloseAll(held)
	grace := 0.0
	if p.TimeoutS != nil {
		grace = *p.TimeoutS
	}
	out.Snapshot = sn.ID
	m.audit(ctx, s, "", api.AuditRestored, sn.Snapshot, 0)
	if s, out.Ended, err = m.stopAndKeep(ctx, s, seconds(grace), "stopped to be restored"); err != nil {
		return out, err
	}
	restored := m.putBack(ctx, s, sn)
	sp.Owner = s.spec.Owner
	out.Sandbox, err = m.startStopped(ctx, s, CreateRequest{Spec: sp, FDs: by.FDs, User: s.user, Conn: by.Conn})
	switch {
	case restored != nil:
		return out, errors.Join(restored, err) // the files are as they were before
	case err != nil:
		return out, fmt.Errorf("sandbox %s has the files of snapshot %s and is stopped: it could not be started: %w",
			s.id, sn.ID, err)
	}
	return out, nil
}

// putBack gives a stopped sandbox the files of a snapshot. It is done whole or not at all, also when hutchd is killed:
// a copy is made beside the files, then the record says that it counts, and then it takes their place.
func (m *Manager) putBack(ctx context.Context, s *Sandbox, sn *snapshot) error {
	base := diskuse.Usage{Bytes: sn.Base.Bytes - sn.Bytes, Inodes: sn.Base.Inodes - sn.Inodes}
	return m.replaceFiles(s, sn.Layers[1:], base, func(next string) error {
		return copyLayer(ctx, m.cfg.Shelf.LayerDir(sn.Layers[0]), next)
	})
}

// replaceFiles puts what make makes in a folder in the place of a stopped sandbox's files, above these layers of the
// shelf.
func (m *Manager) replaceFiles(s *Sandbox, above []string, take diskuse.Usage, make func(next string) error) error {
	next := filepath.Join(s.dir, "fs", nextDir)
	err := removeAll(next)
	if err == nil {
		err = os.Mkdir(next, 0o700)
	}
	if err == nil {
		err = make(next)
	}
	if err != nil {
		return errors.Join(diskError("restore files", err), removeAll(next))
	}
	layers, base, was := s.layers, s.base, s.next
	s.layers, s.base, s.next = above, take, true
	if err := s.saveKept(); err != nil {
		s.layers, s.base, s.next = layers, base, was
		return errors.Join(err, removeAll(next))
	}
	return m.rollForward(s)
}

// nextDir is, below fs, what takes the place of the upper folders: upper, and <i> for <i>/upper.
const nextDir = "next"

func copyLayer(ctx context.Context, layer, next string) error {
	over, err := os.ReadDir(filepath.Join(layer, "over"))
	if err != nil {
		return err
	}
	parts := [][2]string{{filepath.Join(layer, "root"), "upper"}}
	for _, e := range over {
		parts = append(parts, [2]string{filepath.Join(layer, "over", e.Name()), e.Name()})
	}
	for _, part := range parts {
		to := filepath.Join(next, part[1])
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if _, err := copyInto(ctx, part[0], to); err != nil {
			return err
		}
	}
	return nil
}

// rollForward puts what is in next in its place, as often as it takes; without a word on record that it counts, it
// goes.
func (m *Manager) rollForward(s *Sandbox) error {
	fsDir := filepath.Join(s.dir, "fs")
	next := filepath.Join(fsDir, nextDir)
	if s.next {
		entries, err := os.ReadDir(next)
		if err != nil {
			return err
		}
		for _, e := range entries {
			to := filepath.Join(fsDir, "upper")
			if e.Name() != "upper" {
				to = filepath.Join(fsDir, e.Name(), "upper")
			}
			if err := errors.Join(removeAll(to), os.Rename(filepath.Join(next, e.Name()), to)); err != nil {
				return fmt.Errorf("restore files: %w", err)
			}
		}
		s.next = false
		if err := s.saveKept(); err != nil {
			s.next = true
			return err
		}
	}
	return removeAll(next)
}
