package registry

import (
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Parse gives the full form of a reference: short names mean docker.io and
// docker.io/library, no tag means "latest", and a digest makes a tag void.
func Parse(ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		e := api.Errorf(api.InvalidArgument, "image reference %q: %w", ref, err).WithField("image")
		if lower := strings.ToLower(ref); lower != ref {
			return nil, e.WithHint("Repository names are lower case: try %q.", lower)
		}
		return nil, e.WithHint("A reference is [registry/]name[:tag][@digest], such as debian:12 or 127.0.0.1:5000/app:dev.")
	}
	return named, nil
}

// Parse is Parse for what people type: a short name that registries.conf has an alias
// for is what that says. All others mean docker.io: hutch searches no registries, whose
// answer would depend on who is first to take a name there.
func (c *Config) Parse(ref string) (reference.Named, error) {
	plain, err := Parse(ref)
	if err != nil {
		return nil, err
	}
	short, ok := shortName(ref)
	if !ok {
		return plain, nil
	}
	full, from, err := sysregistriesv2.ResolveShortNameAlias(&types.SystemContext{
		SystemRegistriesConfPath: c.RegistriesConf,
		// Of the caller's choices podman remembers some in a file of its cache: what an
		// image means here must not depend on what was asked there. There is none here.
		UserShortNameAliasConfPath: filepath.Join(c.Empty, "short-names"),
	}, short)
	switch {
	case err != nil:
		return nil, api.Errorf(api.FailedPrecondition, "image reference %q: look for an alias: %w", ref, err).
			WithField("image").WithHint("Correct registries.conf (containers-registries.conf(5)), or give the full name: %s.", plain)
	case full == nil:
		return plain, nil
	}
	named, err := Parse(full.Name() + strings.TrimPrefix(ref, short))
	if err != nil {
		return nil, err
	}
	c.Logger.Debug("alias", "image", ref, "ref", named.String(), "file", from)
	return named, nil
}

// shortName is the repository of a reference that names no registry.
func shortName(ref string) (string, bool) {
	parsed, err := reference.Parse(ref)
	named, ok := parsed.(reference.Named)
	if err != nil || !ok {
		return "", false // an id, or nothing
	}
	if domain := reference.Domain(named); strings.ContainsAny(domain, ".:") || domain == "localhost" {
		return "", false
	}
	return named.Name(), true
}
