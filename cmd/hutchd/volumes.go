package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/server"
)

// volumeBackend joins the volumes and the sandboxes that have them.
type volumeBackend struct{ d *daemon }

var _ server.Volumes = volumeBackend{}

func (b volumeBackend) CreateVolume(who server.Actor, p api.VolumeParams) (api.Volume, error) {
	return b.d.volumes.Create(who.UID, p.Name)
}

func (b volumeBackend) ListVolumes(ctx context.Context, who server.Actor, p api.VolumeListParams) ([]api.Volume,
	error) {
	list, err := b.d.volumes.List(who.UID)
	if err != nil {
		return nil, err
	}
	for i := range list {
		v := &list[i]
		v.Sandboxes = b.d.manager.UsersOf(who.UID, v.Name)
		if !p.Usage {
			continue
		}
		used, err := b.d.volumes.Usage(ctx, who.UID, v.Name)
		if err != nil { // removed meanwhile, or deeper than anybody follows
			b.d.log.Warn("measure a volume", "volume", v.Name, "err", err)
			continue
		}
		v.Bytes, v.Inodes = &used.Bytes, &used.Inodes
	}
	return list, ctx.Err()
}

func (b volumeBackend) RemoveVolume(who server.Actor, p api.VolumeParams) error {
	return b.d.volumes.Remove(who.UID, p.Name)
}
