package client

import (
	"context"
	"fmt"
	"io"
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

// Authenticate shows a token to a daemon whose configuration names some, and returns the name that it has there; "" of
// one that names none. Connect, Dial and Start do it with the token of the environment.
func (c *Client) Authenticate(ctx context.Context, token string) (name string, err error) {
	r, err := Do(ctx, c, api.CallAuthenticate, api.AuthenticateParams{Token: token})
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
	token, err := ReadToken(path)
	if err != nil {
		return "", api.Errorf(api.InvalidArgument, "%s: %w", EnvTokenFile, err).WithOp("connect").
			WithHint("name a file that holds a token and nothing else, and that nobody else can read: chmod 600 %s",
				path)
	}
	return token, nil
}

// ReadToken reads a file with a token, which nobody else may be able to read.
func ReadToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if mode := st.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others (mode %04o)", path, mode.Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, 2*api.MaxToken+1))
	if err == nil && len(data) > 2*api.MaxToken {
		err = fmt.Errorf("%s: over %d bytes are no token", path, 2*api.MaxToken)
	}
	return strings.TrimSpace(string(data)), err
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
