// Package registry knows where images come from by their names.
package registry

import "strings"

// DockerHub is the registry of images that name none.
const DockerHub = "docker.io"

// Of is the host[:port] of an image, as containers/image reads its name. Aliases of registries.conf are the
// user's own.
func Of(image string) string {
	first, _, more := strings.Cut(image, "/")
	switch {
	case !more || !strings.ContainsAny(first, ".:") && first != "localhost", first == "index.docker.io",
		first == "registry-1.docker.io":
		return DockerHub
	}
	return first
}

// IsRuntime reports whether an image is one that the configuration names: python@3.12.
func IsRuntime(image string) bool {
	_, version, ok := strings.Cut(image, "@")
	return ok && !strings.ContainsAny(version, ":") && !strings.Contains(image, "/")
}
