package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// listVolumes joins a user's volumes and the sandboxes that have them.
func (d *daemon) listVolumes(ctx context.Context, by sandbox.Caller, p api.VolumeListParams) (api.Volumes, error) {
	list, err := d.volumes.List(by.User)
	if err != nil {
		return api.Volumes{}, err
	}
	for i := range list {
		v := &list[i]
		v.Sandboxes = d.manager.Workspaces.UsersOf(by.User, v.Name)
		if !p.Usage {
			continue
		}
		used, err := d.volumes.Usage(ctx, by.User, v.Name)
		if err != nil { // removed meanwhile, or deeper than anybody follows
			d.log.Warn("measure a volume", "volume", v.Name, "err", err)
			continue
		}
		v.Bytes, v.Inodes = &used.Bytes, &used.Inodes
	}
	return api.Volumes{Volumes: list}, ctx.Err()
}
