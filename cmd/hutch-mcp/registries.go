package main

import (
	"slices"

	"github.com/hutch-sh/hutch/internal/registry"
	"github.com/hutch-sh/hutch/runtime/api"
)

// mayFetch reports whether a model may have the daemon fetch an image. What a registry is asked for tells it something,
// and a registry may be anything, a service on this host's loopback, too: to name images is a way out for who has no
// network. So a session fetches what the user has named, and of Docker Hub what it likes if its sandboxes have a
// network at all.
func (b *boxes) mayFetch(image string) bool {
	if image == "" || image == b.cfg.Spec.Image || registry.IsRuntime(image) {
		return true
	}
	host := registry.Of(image)
	network := b.cfg.Spec.Network
	some := network.Effective() != api.NetNone
	return slices.Contains(b.cfg.Registries, host) || host == registry.DockerHub && some
}

// explained says why an image that may not be fetched is not here; other errors stay as they are.
func (b *boxes) explained(image string, err error, fetches bool) error {
	if fetches || api.ErrorCode(err) != api.NotFound {
		return err
	}
	return api.Errorf(api.PermissionDenied,
		"image %.200q is not on this host, and this session may not fetch it from %.200s: %w", image,
		registry.Of(image), err).
		WithHint("use the session's own image or one such as python@3.12; the user can allow the registry: hutch mcp --registry %.200s", registry.Of(image))
}
