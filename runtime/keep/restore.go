package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// RestoreSnapshot gives the sandbox that a snapshot was taken of the files of then, in place: the same id, name, policy
// and limits.
func (k *Keep) RestoreSnapshot(ctx context.Context, by Caller, p api.SnapshotRestoreParams) (
	out api.SnapshotRestored, err error) {
	if err := p.Validate(); err != nil {
		return out, err
	}
	sn, err := k.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return out, err
	}
	s, done, err := k.sandboxes.Turn(ctx, sn.Sandbox)
	if api.ErrorCode(err) == api.NotFound {
		err = api.Errorf(api.NotFound, "sandbox %s, which snapshot %s was taken of, is gone", sn.Sandbox, sn.ID).
			WithField("snapshot").
			WithHint("make another of it: hutch fork --snapshot %s", sn.ID)
	}
	if err != nil {
		return out, err
	}
	defer done()
	sp, err := workspace.HandOver(specOf(s), p.Folders)
	if err != nil {
		return out, err
	}
	held, err := k.shelf.Use(sn.Layers)
	if err != nil {
		return out, fmt.Errorf("use the layers of snapshot %s: %w", sn.ID, err)
	}
	defer shelf.CloseAll(held)
	grace := 0.0
	if p.TimeoutS != nil {
		grace = *p.TimeoutS
	}
	out.Snapshot = sn.ID
	s.Audit(ctx, api.AuditRestored, sn.Snapshot)
	if s, out.Ended, err = s.Stop(ctx, seconds(grace), "stopped to be restored"); err != nil {
		return out, err
	}
	restored := k.putBack(ctx, s, sn)
	sp.Owner = specOf(s).Owner
	out.Sandbox, err = s.Start(ctx, sp, by)
	switch {
	case restored != nil:
		return out, errors.Join(restored, err) // the files are as they were before
	case err != nil:
		return out, fmt.Errorf("sandbox %s has the files of snapshot %s and is stopped: it could not be started: %w",
			s.ID(), sn.ID, err)
	}
	return out, nil
}

// specOf is the spec of a sandbox as it is now.
func specOf(s Sandbox) api.Spec {
	sp, _ := s.Now()
	return sp
}

// putBack gives a stopped sandbox the files of a snapshot, whole or not at all.
func (k *Keep) putBack(ctx context.Context, s Sandbox, sn *snapshot) error {
	base := diskuse.Usage{Bytes: sn.Base.Bytes - sn.Bytes, Inodes: sn.Base.Inodes - sn.Inodes}
	return k.Replace(s, sn.Layers[1:], base, func(next string) error {
		return k.copyLayer(ctx, k.shelf.LayerDir(sn.Layers[0]), next)
	})
}

func (k *Keep) copyLayer(ctx context.Context, layer, next string) error {
	over, err := os.ReadDir(filepath.Join(layer, "over"))
	if err != nil {
		return err
	}
	parts := [][2]string{{filepath.Join(layer, "root"), upper}}
	for _, e := range over {
		parts = append(parts, [2]string{filepath.Join(layer, "over", e.Name()), e.Name()})
	}
	for _, part := range parts {
		to := filepath.Join(next, part[1])
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if _, err := k.Copy(ctx, part[0], to); err != nil {
			return err
		}
	}
	return nil
}
