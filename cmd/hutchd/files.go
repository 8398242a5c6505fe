package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/server"
)

var _ server.Files = (*backend)(nil)

func (b *backend) ReadFile(ctx context.Context, p api.FileReadParams, fds *jsonrpc.FDs) (api.FileChunk, error) {
	return b.d.manager.ReadFile(ctx, p, fds)
}

func (b *backend) WriteFile(ctx context.Context, p api.FileWriteParams, fds *jsonrpc.FDs) (api.FileWritten, error) {
	return b.d.manager.WriteFile(ctx, p, fds)
}

func (b *backend) ListFiles(ctx context.Context, p api.FileListParams) (api.FileList, error) {
	return b.d.manager.ListFiles(ctx, p)
}

func (b *backend) StatFile(ctx context.Context, p api.FileStatParams) (api.File, error) {
	return b.d.manager.StatFile(ctx, p)
}

func (b *backend) MakeFolder(ctx context.Context, p api.FileMkdirParams) (api.FileMade, error) {
	return b.d.manager.MakeFolder(ctx, p)
}

func (b *backend) RemoveFile(ctx context.Context, p api.FileRemoveParams) (api.FileRemoved, error) {
	return b.d.manager.RemoveFile(ctx, p)
}

func (b *backend) PackFiles(ctx context.Context, p api.FilePackParams, fds *jsonrpc.FDs) (api.FileArchive, error) {
	return b.d.manager.PackFiles(ctx, p, fds)
}

func (b *backend) UnpackFiles(ctx context.Context, p api.FileUnpackParams, fds *jsonrpc.FDs) (api.FileArchive, error) {
	return b.d.manager.UnpackFiles(ctx, p, fds)
}

func (b *backend) MoveFile(ctx context.Context, p api.FileMoveParams) error {
	return b.d.manager.MoveFile(ctx, p)
}

func (b *backend) SyncFiles(ctx context.Context, p api.FileSyncParams) (api.FileSynced, error) {
	return b.d.manager.SyncFiles(ctx, p)
}
