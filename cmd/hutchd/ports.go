package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/server"
)

// portBackend is the manager, with fds as the server has them.
type portBackend struct{ d *daemon }

var _ server.Ports = portBackend{}

func (b portBackend) ExposePort(ctx context.Context, p api.PortExposeParams, fds *jsonrpc.FDs) (api.Port, error) {
	return b.d.manager.ExposePort(ctx, p, fds)
}

func (b portBackend) Ports(ref string) ([]api.Port, error) { return b.d.manager.Ports(ref) }

func (b portBackend) ClosePort(ctx context.Context, p api.PortCloseParams) ([]api.Port, error) {
	return b.d.manager.ClosePort(ctx, p)
}
