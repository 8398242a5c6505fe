package images

import (
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// parseRef is parseRef for what people type: a short name that registries.conf has an alias
// for is what that says. All others mean docker.io: hutch searches no registries, whose
// answer would depend on who is first to take a name there.
func (s *Store) parseRef(ref string) (reference.Named, error) {
	plain, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	short, ok := shortName(ref)
	if !ok {
		return plain, nil
	}
	full, from, err := sysregistriesv2.ResolveShortNameAlias(&types.SystemContext{
		SystemRegistriesConfPath: s.opts.RegistriesConf,
		// Of the caller's choices podman remembers some in a file of its cache: what an
		// image means here must not depend on what was asked there. There is none here.
		UserShortNameAliasConfPath: s.path(locksDir + "/short-names"),
	}, short)
	switch {
	case err != nil:
		return nil, api.Errorf(api.FailedPrecondition, "image reference %q: look for an alias: %w", ref, err).
			WithField("image").WithHint("Correct registries.conf (containers-registries.conf(5)), or give the full name: %s.", plain)
	case full == nil:
		return plain, nil
	}
	named, err := parseRef(full.Name() + strings.TrimPrefix(ref, short))
	if err != nil {
		return nil, err
	}
	s.log.Debug("alias", "image", ref, "ref", named.String(), "file", from)
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
