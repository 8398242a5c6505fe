package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
)

var _ server.Pools = (*backend)(nil)

func (b *backend) CreatePool(ctx context.Context, who server.Actor, p api.PoolSpec,
	progress func(api.Progress)) (api.Pool, error) {
	return b.d.manager.CreatePool(ctx, sandbox.PoolRequest{Spec: p, User: who.UID, Progress: progress})
}

func (b *backend) Acquire(ctx context.Context, who server.Actor, p api.AcquireParams) (*api.Sandbox, error) {
	return b.d.manager.Acquire(ctx, p, who.Conn)
}

func (b *backend) Release(ctx context.Context, ref string) (api.KillResult, error) {
	return b.d.manager.Release(ctx, ref)
}

func (b *backend) Pool(name string) (api.Pool, error) { return b.d.manager.Pool(name) }

func (b *backend) Pools() []api.Pool { return b.d.manager.Pools() }

func (b *backend) ResizePool(name string, size int) (api.Pool, error) {
	return b.d.manager.ResizePool(name, size)
}

func (b *backend) RemovePool(name string) (api.PoolRemoved, error) {
	return b.d.manager.RemovePool(name)
}
