package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Config is how registries are used.
type Config struct {
	// RegistriesConf, AuthFile and PolicyFile replace the files that
	// containers-registries.conf(5), containers-auth.json(5) and
	// containers-policy.json(5) name. Empty means those.
	RegistriesConf, AuthFile, PolicyFile string
	// Stall is how long a registry, or a credential helper, may say nothing.
	Stall time.Duration
	// Logger gets debug lines.
	Logger *slog.Logger
	// Temp is where the library may put files, Empty a folder in which a file short-names is never made.
	Temp, Empty string
	// OwnLookaside makes a folder as of containers-registries.d(5), for who has none.
	OwnLookaside func() (dir string, err error)
}

// System says where containers/image finds its configuration and what
// it may do with name, which is of the registry domain.
func (c *Config) System(domain, name string) (*types.SystemContext, error) {
	if err := checkHome(); err != nil {
		return nil, err
	}
	sys := &types.SystemContext{
		SystemRegistriesConfPath: c.RegistriesConf,
		AuthFilePath:             c.AuthFile,
		SignaturePolicyPath:      c.PolicyFile,
		BigFilesTemporaryDir:     c.Temp,
		DockerRegistryUserAgent:  "hutch",
	}
	dir, err := c.registriesD()
	if err != nil {
		return nil, err
	}
	sys.RegistriesDirPath = dir
	// Plain http is for loopback only, where nobody listens in; a registry
	// that registries.conf describes is used as described there.
	if isLoopback(domain) {
		known, err := sysregistriesv2.FindRegistry(sys, name)
		if err != nil {
			return nil, fmt.Errorf("read registries.conf: %w", err)
		}
		if known == nil {
			sys.DockerInsecureSkipTLSVerify = types.OptionalBoolTrue
		}
	}
	return sys, noClearText(sys, domain, name)
}

// checkHome makes sure that the user's containers configuration can be looked
// at. A signature policy there that cannot be read must not count as none: a
// daemon of root's, which runs under ids of its own and cannot enter /root, has
// to be given a HOME that it can.
func checkHome() error {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil // no HOME: the library looks at the system's files only
	}
	_, err = os.Stat(filepath.Join(dir, "containers", "policy.json"))
	if errors.Is(err, fs.ErrPermission) {
		return api.Errorf(api.FailedPrecondition, "the containers configuration cannot be looked at: %w", err).
			WithHint("HOME must name a folder that hutchd may read.")
	}
	return nil
}

// registriesD chooses the folder of containers-registries.d(5). Where neither
// the user nor the system has one, the library would look for signatures in
// /var/lib/containers/sigstore, which belongs to the host's root and cannot be
// read from a user namespace; an own folder points it at an empty place.
func (c *Config) registriesD() (string, error) {
	candidates := []string{"/etc/containers/registries.d", "/usr/share/containers/registries.d"}
	if home, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(home, "containers/registries.d"))
	}
	for _, dir := range candidates {
		if _, err := os.Stat(dir); err == nil {
			return "", nil // the library's own search finds it
		}
	}
	return c.OwnLookaside()
}

// isLoopback reports whether a registry's host[:port] is this machine.
func isLoopback(domain string) bool {
	host := domain
	if h, _, err := net.SplitHostPort(domain); err == nil {
		host = h
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(trimBrackets(host))
	return ip != nil && ip.IsLoopback()
}

func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// CheckPolicy asks containers-policy.json(5) whether the image may be run. A
// machine without any policy file accepts everything, as docker does: the
// built-in policy is used only when there is none, never when one is broken.
func CheckPolicy(ctx context.Context, sys *types.SystemContext, unparsed *image.UnparsedImage) error {
	policy, err := signature.DefaultPolicy(sys)
	if errors.Is(err, configfile.ErrConfigFileNotFound) && sys.SignaturePolicyPath == "" {
		err = nil
		policy = &signature.Policy{Default: []signature.PolicyRequirement{signature.NewPRInsecureAcceptAnything()}}
	} else if err == nil {
		err = checkScopes(policy)
	}
	if err != nil {
		return api.Errorf(api.FailedPrecondition, "signature policy: %w", err).
			WithHint("Correct the policy file; see containers-policy.json(5).")
	}
	pc, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fmt.Errorf("signature policy: %w", err)
	}
	defer func() { _ = pc.Destroy() }()
	if ok, err := pc.IsRunningImageAllowed(ctx, unparsed); !ok {
		return api.Errorf(api.PermissionDenied, "the signature policy does not allow this image: %w", err).
			WithHint("Sign the image, or change the policy (containers-policy.json(5)).")
	}
	return nil
}
