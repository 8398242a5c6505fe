package client

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Variables that hold a client's token, or name a file that does. The daemon does not get them.
const (
	EnvToken     = "HUTCH_TOKEN"
	EnvTokenFile = "HUTCH_TOKEN_FILE"
)

// authenticate shows the token that the environment has, if it has one, before anything else is said.
func (c *Client) authenticate(ctx context.Context, env []string) error {
	token, err := tokenOf(getter(env))
	if token == "" || err != nil {
		return err
	}
	_, err = c.Authenticate(ctx, token)
	if api.ErrorCode(err) == api.Unimplemented { // of a build that knows no tokens
		return nil
	}
	return err
}

// Authenticate shows a token to a daemon whose configuration names some, and returns the name that it has there; "" of one that
// names none. Connect, Dial and Start do it with the token of the environment.
func (c *Client) Authenticate(ctx context.Context, token string) (name string, err error) {
	r, err := get[api.Authenticated](ctx, c, api.MethodAuthenticate, api.AuthenticateParams{Token: token})
	return r.Client, err
}

func tokenOf(get func(string) string) (string, error) {
	if token := get(EnvToken); token != "" {
		return token, nil
	}
	path := get(EnvTokenFile)
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err == nil && len(data) > 2*api.MaxToken {
		err = fmt.Errorf("%d bytes are no token", len(data))
	}
	if err != nil {
		return "", api.Errorf(api.InvalidArgument, "%s=%s: %w", EnvTokenFile, path, err).WithOp("connect").WithHint("name a file that holds a token and nothing else")
	}
	return strings.TrimSpace(string(data)), nil
}

// withoutToken is the environment of a daemon; nil is the caller's.
func withoutToken(env []string) []string {
	if env == nil {
		env = os.Environ()
	}
	var rest []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, EnvToken+"=") && !strings.HasPrefix(kv, EnvTokenFile+"=") {
			rest = append(rest, kv)
		}
	}
	return rest
}
