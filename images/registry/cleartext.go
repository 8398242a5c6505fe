package registry

import (
	"fmt"
	"net/http"
	"net/url"

	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// noClearText makes requests that are made for a registry fail where they would go in clear text: a registry says where
// its tokens are to be fetched, with the password, and where its blobs are, so one that is reached by TLS can send its
// clients to plain http. That is for those registries alone whose owner of this machine wants it: on loopback, and as
// registries.conf says (insecure).
func noClearText(sys *types.SystemContext, domain, name string) error {
	plain := map[string]bool{} // hosts
	all := sys.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue
	known, err := sysregistriesv2.FindRegistry(sys, name)
	if err != nil {
		return fmt.Errorf("read registries.conf: %w", err)
	}
	if known != nil {
		all = all || known.Insecure
		for _, m := range known.Mirrors {
			if u, err := url.Parse("http://" + m.Location); err == nil && m.Insecure {
				plain[u.Host] = true
			}
		}
	}
	sys.DockerProxy = func(u *url.URL) (*url.URL, error) { // asked for each request, those of redirects included
		if u.Scheme != "https" && !all && !plain[u.Host] {
			return nil, clearText(domain, u.Host)
		}
		return http.ProxyFromEnvironment(&http.Request{URL: u})
	}
	return nil
}

func clearText(domain, host string) error {
	return api.Errorf(api.PermissionDenied,
		"registry %s sends its clients to %s without TLS, where passwords and tokens could be read on the way",
		domain, host).
		WithHint("Tell whoever runs the registry: its token address or a redirect begins with http://. Where that is wanted, registries.conf says so (insecure = true).")
}
