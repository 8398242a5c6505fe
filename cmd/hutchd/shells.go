package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

func (b *backend) OpenShell(ctx context.Context, p api.ShellParams) (api.Shell, error) {
	return b.d.manager.OpenShell(ctx, p)
}

func (b *backend) RunShell(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	return b.d.manager.RunShell(ctx, p)
}

func (b *backend) CloseShell(ctx context.Context, p api.ShellRef) (api.ExecResult, error) {
	return b.d.manager.CloseShell(ctx, p)
}

func (b *backend) Shells(sandbox string) ([]api.Shell, error) { return b.d.manager.Shells(sandbox) }
