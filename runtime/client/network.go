package client

import (
	"context"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Network says what a sandbox may reach, what it was refused, and in mode learn what it
// would need.
func (c *Client) Network(ctx context.Context, ref string) (api.Network, error) {
	return get[api.Network](ctx, c, api.MethodNetworkGet, api.SandboxParams{Sandbox: ref})
}

// UpdateNetwork changes what a running sandbox may reach.
func (c *Client) UpdateNetwork(ctx context.Context, p api.NetUpdateParams) (api.Network, error) {
	return get[api.Network](ctx, c, api.MethodNetworkUpdate, p)
}

// ExposePort lets programs of the host connect to a port in a sandbox. listener, which may be nil and stays the
// caller's, is a socket that listens already.
func (c *Client) ExposePort(ctx context.Context, p api.PortExposeParams, listener *os.File) (api.Port, error) {
	p.FDs, p.Listener = one(listener)
	return get[api.Port](ctx, c, api.MethodPortExpose, p, withPipe(listener))
}

// Ports lists the ports that the host reaches, of one sandbox or with "" of all.
func (c *Client) Ports(ctx context.Context, sandbox string) ([]api.Port, error) {
	r, err := get[api.Ports](ctx, c, api.MethodPortList, api.PortListParams{Sandbox: sandbox})
	return r.Ports, err
}

// ClosePort ends what is exposed of a port, and returns that.
func (c *Client) ClosePort(ctx context.Context, p api.PortCloseParams) ([]api.Port, error) {
	r, err := get[api.Ports](ctx, c, api.MethodPortClose, p)
	return r.Ports, err
}

// CheckNetwork asks what a policy does with a name, an address or a port.
func (c *Client) CheckNetwork(ctx context.Context, p api.NetCheckParams) (api.NetVerdict, error) {
	return get[api.NetVerdict](ctx, c, api.MethodNetworkCheck, p)
}

// Asks are the connections that wait for an answer, and what is always answered the same.
func (c *Client) Asks(ctx context.Context) (api.Asks, error) {
	return get[api.Asks](ctx, c, api.MethodNetworkAsks, api.Empty{})
}

// Answer answers the question whether a connection that is held may be made.
func (c *Client) Answer(ctx context.Context, p api.AnswerParams) error {
	return c.Call(ctx, api.MethodNetworkAnswer, p, nil)
}

// ForgetAlways forgets what was to be allowed always.
func (c *Client) ForgetAlways(ctx context.Context, entries []string) (api.Asks, error) {
	return get[api.Asks](ctx, c, api.MethodNetworkForget, api.ForgetParams{Entries: entries})
}
