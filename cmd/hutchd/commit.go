package main

import (
	"context"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// Commit makes an image while the sandbox stands still; it leases the layers below.
func (b imageBackend) Commit(ctx context.Context, p api.CommitParams, progress func(api.Progress)) (out api.Committed,
	err error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	err = b.d.manager.Keep.StandStill(ctx, p.Sandbox, func(w keep.Written) error {
		img, stats, err := b.d.store.Commit(ctx, p.Ref, images.CommitOptions{
			Folders: w.Folders, Pack: unpack.PackOptions{Omit: w.Own, Plain: w.Plain},
			Base:   images.Base{Ref: w.Root.Ref, Config: storeConfig(w.Root.Config), Lower: w.Root.Lower},
			Change: p.Changes, Author: p.Author, Message: p.Message, Progress: b.d.pullEvents(p.Ref, progress),
		})
		if err == nil {
			out = api.Committed{Image: record(img), LeftOut: stats.Nodes, LeftOutNames: stats.Names}
		}
		return err
	})
	return out, err
}

// Export writes into what the caller has opened: this process opens no path for it.
func (b imageBackend) Export(ctx context.Context, p api.ExportParams, fds packet.Taker) (api.Exported, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return api.Exported{}, err
	}
	file, err := fds.Take(*p.FD)
	if err != nil {
		return api.Exported{}, err
	}
	defer file.Close()
	return b.d.store.Export(ctx, ref, file, p.Format)
}

// Push sends an image; what it may is in the containers configuration of the user.
func (b imageBackend) Push(ctx context.Context, p api.PushParams, progress func(api.Progress)) (api.Pushed, error) {
	b.d.busy.Add(1)
	defer b.d.busy.Add(-1)
	ref, err := b.d.imageName(p.Ref)
	if err != nil {
		return api.Pushed{}, err
	}
	return b.d.store.Push(ctx, ref, p.Target, b.d.pullEvents(p.Ref, progress))
}

// storeConfig is the inverse of configOf.
func storeConfig(c api.ImageConfig) images.Config {
	return images.Config{
		Env: c.Env, User: c.User, WorkingDir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
		Volumes: c.Volumes, StopSignal: c.StopSignal, Labels: c.Labels, ExposedPorts: c.ExposedPorts,
	}
}
