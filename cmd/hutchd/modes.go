package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/mode"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/server"
)

// modes are the settings of where commands run.
func modes(s *monitorapi.Settings) mode.Settings {
	return mode.Settings{Mode: s.Mode, Host: s.Host, Exec: s.Exec}
}

func (b *backend) Decide(ctx context.Context, who server.Actor, p api.DecideParams) (api.Decision, error) {
	return b.d.modes.Decide(ctx, mode.Caller{Conn: who.Conn, Private: who.Private}, p)
}

func (b *backend) EndHost(who server.Actor, p api.HostEndParams) error {
	return b.d.modes.Ended(mode.Caller{Conn: who.Conn, Private: who.Private}, p)
}
