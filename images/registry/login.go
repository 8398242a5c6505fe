package registry

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/runtime/api"
)

// logins is held by who changes the file of credentials: the library reads it, changes it
// and writes it again.
var logins sync.Mutex

// Login asks a registry whether it knows user and password and, if so, stores them where
// pulls and pushes look: in the credential helper or file that containers-auth.json(5)
// describes. p.Registry may go on with a path, below which they are then used.
func (c *Config) Login(ctx context.Context, p api.LoginParams) (api.Login, error) {
	key, sys, err := c.loginContext(p.Registry)
	if err != nil {
		return api.Login{}, err
	}
	op := "log in to " + key
	host, _, _ := strings.Cut(key, "/")
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(ErrEnded)
	defer GiveUp(c.Stall, cancel, "the registry has not answered within %s").Stop()
	if err := docker.CheckAuth(asking, sys, p.Username, string(p.Password), host); err != nil {
		return api.Login{}, loginError(ctx, Stalled(asking, err), op)
	}
	// The library waits for a helper without end: one that answers now will do so then.
	if _, err := c.credentials(ctx, sys, key); api.ErrorCode(err) == api.DeadlineExceeded {
		return api.Login{}, loginError(ctx, err, op)
	}
	logins.Lock()
	defer logins.Unlock()
	if err := startFile(sys); err != nil {
		return api.Login{}, notStored(err, "", "they were not stored").WithOp(op)
	}
	stored, err := config.SetCredentials(sys, key, p.Username, string(p.Password))
	if err != nil {
		return api.Login{}, notStored(err, p.Password, "they were not stored").WithOp(op)
	}
	return api.Login{Registry: key, Username: p.Username, Stored: stored}, nil
}

// Logout removes the credentials of a registry from where Login stores them.
func (c *Config) Logout(ctx context.Context, registry string) error {
	key, sys, err := c.loginContext(registry)
	if err != nil {
		return err
	}
	op := "log out of " + key
	if _, err := c.credentials(ctx, sys, key); api.ErrorCode(err) == api.DeadlineExceeded {
		return loginError(ctx, err, op)
	}
	logins.Lock()
	defer logins.Unlock()
	if err := startFile(sys); err != nil {
		return notStored(err, "", "they were not removed").WithOp(op)
	}
	removed := config.RemoveAuthentication(sys, key)
	if removed != nil && !errors.Is(removed, config.ErrNotLoggedIn) {
		return notStored(removed, "", "they were not removed").WithOp(op)
	}
	if left, err := c.credentials(ctx, sys, key); err == nil && left != (types.DockerAuthConfig{}) {
		return api.Errorf(api.FailedPrecondition, "%s is still known as %q, by a file that hutch does not write", key,
			left.Username).
			WithOp(op).WithHint("docker logout %s removes what docker login stored.", key)
	} else if err != nil {
		return notStored(err, "", "whether there are others is unknown").WithOp(op)
	}
	if removed != nil {
		return notLoggedIn(key)
	}
	return nil
}

// LoginOf says as whom pulls from a registry come.
func (c *Config) LoginOf(ctx context.Context, registry string) (api.Login, error) {
	key, sys, err := c.loginContext(registry)
	if err != nil {
		return api.Login{}, err
	}
	creds, err := c.credentials(ctx, sys, key)
	if err != nil {
		return api.Login{}, notStored(err, "", "they cannot be read").WithOp("find the login of " + key)
	}
	if creds == (types.DockerAuthConfig{}) {
		return api.Login{}, notLoggedIn(key)
	}
	return api.Login{Registry: key, Username: creds.Username}, nil
}

// startFile makes an empty file of credentials one that the library can read.
func startFile(sys *types.SystemContext) error {
	f := authFiles(sys)[0]
	data, err := f.read()
	if data != nil || err != nil {
		return err
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString("{}\n")
	return errors.Join(err, file.Close())
}

func notLoggedIn(key string) error {
	return api.Errorf(api.NotFound, "nobody is logged in to %s", key).WithHint("hutch login %s", key)
}

// loginContext checks the name of a registry, with or without a path.
func (c *Config) loginContext(registry string) (key string, sys *types.SystemContext, err error) {
	host, rest, namespaced := strings.Cut(registry, "/")
	name := registry
	if !namespaced {
		name += "/any"
	}
	ref, err := reference.Parse(name)
	named, ok := ref.(reference.Named)
	switch {
	case err != nil, !ok, !reference.IsNameOnly(named), reference.Domain(named) != host:
		return "", nil, api.Errorf(api.InvalidArgument, "%q is no registry", registry).WithField("registry").
			WithHint("Give HOST or HOST:PORT, such as docker.io, without https://; a path may follow.")
	case host == "index.docker.io", host == "registry-1.docker.io":
		registry = strings.TrimSuffix("docker.io/"+rest, "/")
		host = "docker.io"
	}
	sys, err = c.System(host, registry)
	return registry, sys, err
}

// loginError gives an error of asking a registry its code and hint.
func loginError(ctx context.Context, err error, op string) error {
	var unauthorized docker.ErrUnauthorizedForCredentials
	switch {
	case ctx.Err() != nil:
		return api.Errorf(api.Canceled, "%w", context.Cause(ctx)).WithOp(op).
			WithHint("Nothing was stored; log in again.")
	case errors.As(err, &unauthorized):
		return api.Errorf(api.PermissionDenied, "the registry does not accept this user name and password: %w", err).
			WithOp(op).
			WithHint("Check both; where logging in takes two factors a token takes the place of the password. Nothing was stored.")
	}
	if noToken(err) == nil && StatusOf(err) == http.StatusNotFound {
		return api.Errorf(api.NotFound, "no registry answers there: %w", err).WithOp(op).
			WithHint("Check the name and the port: a registry answers on the path /v2/. Nothing was stored.")
	}
	var known *api.Error
	if errors.As(err, &known) {
		if known.Op == "" {
			known.Op = op
		}
		return known
	}
	if e := Explain(err); e != nil {
		return e.WithOp(op)
	}
	return api.Errorf(api.Internal, "%w", err).WithOp(op)
}

// notStored is for errors of credential helpers and files. Helpers are other people's
// programs: the password does not go on with what they say.
func notStored(err error, password api.Secret, what string) *api.Error {
	if text := err.Error(); password != "" && strings.Contains(text, string(password)) {
		err = errors.New("what its error says holds the password")
	}
	return api.Errorf(api.FailedPrecondition, "credentials: %s: %w", what, err).
		WithHint("See containers-auth.json(5): check the file and its owner, and the credential helpers of registries.conf and of the file.")
}
