package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// workspaceBackend serves what sandboxes have changed in workspaces of mode overlay.
type workspaceBackend struct{ d *daemon }

func (b workspaceBackend) DiffWorkspace(ctx context.Context, p api.WorkspaceDiffParams) (api.WorkspaceDiff, error) {
	return b.d.manager.DiffWorkspace(ctx, p)
}

func (b workspaceBackend) ApplyWorkspace(ctx context.Context, p api.WorkspaceApplyParams,
	fds *jsonrpc.FDs) (api.WorkspaceApplied, error) {
	return b.d.manager.ApplyWorkspace(ctx, p, fds)
}

func (b workspaceBackend) DiscardWorkspace(ctx context.Context, p api.WorkspaceParams) (api.WorkspaceDiscarded, error) {
	return b.d.manager.DiscardWorkspace(ctx, p)
}
