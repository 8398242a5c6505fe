package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/signature"
)

// policyTransports are those of containers-transports(5), which a policy may have scopes for.
var policyTransports = []string{
	"atomic", "containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree",
	"sif", "tarball",
}

// checkScopes refuses a policy with a scope that no image can have: the library takes it, and what it was meant for
// falls to the default, which may accept everything.
func checkScopes(policy *signature.Policy) error {
	for _, transport := range slices.Sorted(maps.Keys(policy.Transports)) {
		if !slices.Contains(policyTransports, transport) {
			return fmt.Errorf("transports: %q is none: use one of %s", transport, strings.Join(policyTransports, ", "))
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(policy.Transports["docker"])) {
		if meant, ok := dockerScope(scope); !ok {
			hint := ""
			if meant != "" && meant != scope {
				hint = fmt.Sprintf(" (%s?)", meant)
			}
			return fmt.Errorf("transports.docker: no image has the scope %q%s: write HOST, HOST/PATH, HOST/PATH:TAG or *.DOMAIN, "+
				"in full, such as docker.io/library/busybox", scope, hint)
		}
	}
	return nil
}

// dockerScope reports whether an image of a registry can have a scope, by the library's rules
// (docker/policyconfiguration), and where that is clear what was meant.
func dockerScope(scope string) (meant string, ok bool) {
	if scope == "" { // all of the transport
		return "", true
	}
	if domain, ok := strings.CutPrefix(scope, "*."); ok {
		// The name without the port is looked up, so that a wildcard with one matches nothing.
		return strings.SplitN(scope, ":", 2)[0], !strings.ContainsAny(domain, ":/*") && isName("x."+domain+"/a/b")
	}
	if isName(scope + "/a/b") {
		return "", true
	}
	bare := strings.TrimRight(scope, "/")
	for _, scheme := range []string{"https://", "http://", "docker://"} {
		bare = strings.TrimPrefix(bare, scheme)
	}
	named, err := reference.ParseNormalizedNamed(bare)
	switch {
	case isName(bare + "/a/b"):
		return bare, false
	case err != nil:
		return "", false
	}
	// What has a tag and a digest is looked up by none.
	_, tagged := named.(reference.Tagged)
	_, digested := named.(reference.Digested)
	return named.String(), named.String() == scope && tagged != digested
}

// isName reports whether a text is the full name of a repository.
func isName(text string) bool {
	named, err := reference.ParseNormalizedNamed(text)
	return err == nil && reference.IsNameOnly(named) && named.Name() == text
}
