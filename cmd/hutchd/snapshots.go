package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/server"
)

// snapshotBackend serves snapshots, of the user who asks, and forks.
type snapshotBackend struct{ d *daemon }

var _ server.Snapshots = snapshotBackend{}

func (b snapshotBackend) CreateSnapshot(ctx context.Context, who server.Actor,
	p api.SnapshotCreateParams) (api.Snapshot, error) {
	return b.d.manager.CreateSnapshot(ctx, who.UID, p)
}

func (b snapshotBackend) ListSnapshots(who server.Actor, p api.SnapshotListParams) ([]api.Snapshot, error) {
	return b.d.manager.Snapshots(who.UID, p)
}

func (b snapshotBackend) DiffSnapshot(ctx context.Context, who server.Actor,
	p api.SnapshotDiffParams) (api.SnapshotDiff, error) {
	return b.d.manager.DiffSnapshot(ctx, who.UID, p)
}

func (b snapshotBackend) RestoreSnapshot(ctx context.Context, who server.Actor, p api.SnapshotRestoreParams,
	fds *jsonrpc.FDs) (api.SnapshotRestored, error) {
	return b.d.manager.RestoreSnapshot(ctx, who.UID, p, who.Conn, fds)
}

func (b snapshotBackend) Checkpoints(ctx context.Context, ref string) (api.Checkpoints, error) {
	return b.d.manager.Checkpoints(ctx, ref)
}

func (b snapshotBackend) RestoreCheckpoint(ctx context.Context, p api.CheckpointRestoreParams,
	fds *jsonrpc.FDs) (api.CheckpointRestored, error) {
	return b.d.manager.RestoreCheckpoint(ctx, p, fds)
}

func (b snapshotBackend) RemoveSnapshot(who server.Actor, p api.SnapshotParams) error {
	return b.d.manager.RemoveSnapshot(who.UID, p.Snapshot)
}

func (b snapshotBackend) Fork(ctx context.Context, who server.Actor, p api.ForkParams, fds *jsonrpc.FDs) (api.Forked,
	error) {
	return b.d.manager.Fork(ctx, who.UID, p, who.Conn, fds)
}
