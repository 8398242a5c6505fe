package main

import (
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// dockerHub is the registry of images that name none.
const dockerHub = "docker.io"

// registryOf is the host[:port] of an image, as containers/image reads its name. Aliases of registries.conf are the
// user's own.
func registryOf(image string) string {
	first, _, more := strings.Cut(image, "/")
	switch {
	case !more || !strings.ContainsAny(first, ".:") && first != "localhost", first == "index.docker.io",
		first == "registry-1.docker.io":
		return dockerHub
	}
	return first
}

// isRuntime reports whether an image is one that the configuration names: python@3.12.
func isRuntime(image string) bool {
	_, version, ok := strings.Cut(image, "@")
	return ok && !strings.ContainsAny(version, ":") && !strings.Contains(image, "/")
}

// mayFetch reports whether a model may have the daemon fetch an image. What a registry is asked for tells it something,
// and a registry may be anything, a service on this host's loopback, too: to name images is a way out for who has no
// network. So a session fetches what the user has named, and of Docker Hub what it likes if its sandboxes have a
// network at all.
func (b *boxes) mayFetch(image string) bool {
	if image == "" || image == b.cfg.Spec.Image || isRuntime(image) {
		return true
	}
	registry := registryOf(image)
	network := b.cfg.Spec.Network
	some := network.Effective() != api.NetNone
	return slices.Contains(b.cfg.Registries, registry) || registry == dockerHub && some
}

// notFetched explains that an image is not here.
func (b *boxes) notFetched(image string, err error) error {
	return api.Errorf(api.PermissionDenied,
		"image %.200q is not on this host, and this session may not fetch it from %.200s: %w", image,
		registryOf(image), err).
		WithHint("use the session's own image or one such as python@3.12; the user can allow the registry: hutch mcp --registry %.200s", registryOf(image))
}
