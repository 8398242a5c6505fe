package keep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

const snapshotNote = "files only: processes, shells and the contexts of code.run are not in it"

// notCovered are where a sandbox has what is not its own.
func notCovered(sp *api.Spec) (targets []string) {
	for _, mt := range workspace.Of(sp) {
		if mt.Mode == api.ModeRW || mt.Mode == api.ModeTmpfs || mt.Volume != "" && mt.Mode == api.ModeRO {
			targets = append(targets, mt.Target)
		}
	}
	return targets
}

// CreateSnapshot takes one. The sandbox stands still for as long as the copy takes.
func (k *Keep) CreateSnapshot(ctx context.Context, by Caller, p api.SnapshotCreateParams) (api.Snapshot, error) {
	if err := p.Validate(); err != nil {
		return api.Snapshot{}, err
	}
	known, err := k.roomForSnapshot(by.User, p.Name, nil)
	if err != nil {
		return api.Snapshot{}, err
	}
	s, done, err := k.sandboxes.Turn(ctx, p.Sandbox)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer done()
	sn, held, err := k.takeLayer(ctx, s)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer shelf.CloseAll(held)
	sn.ID, sn.User, sn.Name, sn.Labels = newID("sn_"), by.User, p.Name, p.Labels
	if err := k.saveSnapshot(sn, known); err != nil {
		shelf.CloseAll(held)
		return api.Snapshot{}, errors.Join(err, k.Collect())
	}
	s.Audit(ctx, api.AuditSnapshot, sn.Snapshot)
	return sn.Snapshot, nil
}

// Snapshots lists a user's.
func (k *Keep) Snapshots(_ context.Context, by Caller, p api.SnapshotListParams) (api.Snapshots, error) {
	all, err := k.snapshots(by.User)
	if err != nil {
		return api.Snapshots{}, err
	}
	list := []api.Snapshot{}
	for _, sn := range all {
		if p.Sandbox == "" || sn.Sandbox == p.Sandbox {
			list = append(list, sn.Snapshot)
		}
	}
	return api.Snapshots{Snapshots: list}, nil
}

// RemoveSnapshot removes one. What was forked from it keeps what it needs.
func (k *Keep) RemoveSnapshot(_ context.Context, by Caller, p api.SnapshotParams) (none api.Empty, err error) {
	sn, err := k.snapshotOf(by.User, p.Snapshot)
	if err != nil {
		return none, err
	}
	if err := k.shelf.RemoveSnapshot(sn.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none, fmt.Errorf("remove snapshot %s: %w", sn.ID, err)
	}
	return none, errors.Join(k.images.Unpin(snapshotPin(sn.ID)), k.Collect())
}
