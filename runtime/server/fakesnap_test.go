package server

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

type fakeSnapshots struct{}

func (fakeSnapshots) CreateSnapshot(_ context.Context, _ Actor, p api.SnapshotCreateParams) (api.Snapshot, error) {
	return api.Snapshot{ID: "sn_1", Name: p.Name}, p.Validate()
}

func (fakeSnapshots) ListSnapshots(Actor, api.SnapshotListParams) ([]api.Snapshot, error) {
	return nil, nil
}

func (fakeSnapshots) DiffSnapshot(_ context.Context, _ Actor, p api.SnapshotDiffParams) (api.SnapshotDiff, error) {
	return api.SnapshotDiff{Snapshot: p.Snapshot}, p.Validate()
}

func (fakeSnapshots) RestoreSnapshot(_ context.Context, _ Actor, p api.SnapshotRestoreParams,
	_ *jsonrpc.FDs) (api.SnapshotRestored, error) {
	return api.SnapshotRestored{Snapshot: p.Snapshot}, p.Validate()
}
func (fakeSnapshots) Checkpoints(context.Context, string) (api.Checkpoints, error) {
	return api.Checkpoints{}, nil
}

func (fakeSnapshots) RestoreCheckpoint(_ context.Context, p api.CheckpointRestoreParams,
	_ *jsonrpc.FDs) (api.CheckpointRestored, error) {
	return api.CheckpointRestored{ToCall: p.ToCall}, p.Validate()
}

func (fakeSnapshots) RemoveSnapshot(Actor, api.SnapshotParams) error { return nil }
func (fakeSnapshots) Fork(_ context.Context, _ Actor, p api.ForkParams, _ *jsonrpc.FDs) (api.Forked, error) {
	return api.Forked{Sandboxes: []api.Sandbox{{ID: "sb_2"}}}, p.Validate()
}
