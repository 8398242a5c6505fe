package main

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-sh/hutch/internal/eventlog"
	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
)

// backend answers the RPC methods that are about the daemon and its sandboxes.
type backend struct{ d *daemon }

var (
	_ server.System    = (*backend)(nil)
	_ server.Sandboxes = (*backend)(nil)
	_ server.Execs     = (*backend)(nil)
	_ server.Shells    = (*backend)(nil)
	_ server.Modes     = (*backend)(nil)
)

func (b *backend) Info(context.Context, server.Actor) (api.Info, error) {
	d := b.d
	sandboxes, execs, _ := d.manager.Counts()
	s := d.manager.Settings()
	list, err := d.store.List()
	if err != nil {
		return api.Info{}, err
	}
	return api.Info{
		APIVersion: api.Version, BuildID: version.BuildID, Version: version.Version,
		PID: d.cfg.PID, Started: d.started, Launched: d.launched, IDBase: d.cfg.IDBase, Ending: d.ending.Load(),
		Isolation: d.host.Isolation(d.cfg.SingleReason),
		Counts: api.Counts{Sandboxes: sandboxes, Execs: execs, Images: len(list), Ready: d.manager.Ready(),
			Removing: d.manager.Removing()},
		Paths: d.cfg.Paths,
		Exec:  s.Exec, Defaults: d.manager.Defaults(), Quotas: s.Quotas, Network: s.Network.Settled(),
		Mode: d.modes.Settings().Mode, HostExecution: d.modes.Settings().Host,
	}, nil
}

func (b *backend) Doctor(ctx context.Context) (api.Doctor, error) {
	a, err := b.d.question(ctx, monitorapi.Message{Probe: &monitorapi.Probe{}})
	if err != nil {
		return api.Doctor{}, err
	}
	if a.Probed == nil {
		return api.Doctor{}, errors.New("the monitor answered something else than probes")
	}
	return api.Doctor{Checks: append(a.Probed.Checks, b.d.host.EnforcementCheck())}, nil
}

func (b *backend) Shutdown(_ context.Context, p api.ShutdownParams) error {
	switch p.Mode {
	case "", "keep":
		if n, _, _ := b.d.manager.Counts(); n > 0 && b.d.cfg.Private {
			return api.Errorf(api.FailedPrecondition, "a private daemon cannot leave its %d sandboxes to another", n).
				WithHint("remove them first, or use mode kill")
		}
	case "kill":
	default:
		return api.Errorf(api.InvalidArgument, "mode: %q is no mode", p.Mode).WithField("mode").
			WithHint("use keep or kill")
	}
	b.d.end(p.Mode != "kill", "shut down by a client")
	return nil
}

func (b *backend) GC(ctx context.Context) (api.GCResult, error) {
	d := b.d
	removed, err := d.home.sweep()
	if err != nil {
		return api.GCResult{}, err
	}
	old, err := eventlog.Sweep(d.eventsDir(), time.Now().Add(-keepEvents))
	if err != nil {
		return api.GCResult{}, err
	}
	removed = append(removed, old...)
	logs, err := d.audit.Sweep()
	if err != nil {
		return api.GCResult{}, err
	}
	removed = append(removed, logs...)
	if err := d.templates.Sweep(); err != nil {
		return api.GCResult{}, err
	}
	release := imageBackend{d}.settle()
	freed, err := d.store.GC(nil)
	release()
	if err != nil {
		return api.GCResult{}, err
	}
	a, err := d.question(ctx, monitorapi.Message{Sweep: &monitorapi.Sweep{}})
	if err != nil {
		return api.GCResult{}, err
	}
	if s := a.Swept; s != nil {
		if s.Error != "" {
			return api.GCResult{}, api.Errorf(api.Internal, "sweep cgroups: %s", s.Error).
				WithHint("run hutch gc as the user who started the daemon that was killed")
		}
		removed = append(removed, s.Removed...)
	}
	if removed == nil {
		removed = []string{}
	}
	return api.GCResult{Removed: removed, Bytes: freed}, nil
}

func (b *backend) Create(ctx context.Context, who server.Actor, p api.CreateParams, fds *jsonrpc.FDs,
	progress func(api.Progress)) (api.Sandbox, error) {
	return b.d.manager.Create(ctx, sandbox.CreateRequest{
		Spec: p.Spec, FDs: fds, User: who.UID, Conn: who.Conn, Debug: p.Debug, Break: p.Break, Progress: progress,
	})
}

func (b *backend) RunNew(ctx context.Context, who server.Actor, p api.RunParams, fds *jsonrpc.FDs,
	progress func(api.Progress),
	started func(*api.Sandbox, string, int), sent func(func())) (api.RunResult, error) {
	if p.IfState != "" && p.IfState != b.d.cfg.Paths.State {
		return api.RunResult{}, api.Errorf(api.FailedPrecondition, "the daemon keeps its state in %s",
			b.d.cfg.Paths.State).WithField("if_state")
	}
	if p.IfBuild != "" && b.d.ending.Load() { // system.info would have said so
		return api.RunResult{}, errEnding
	}
	res, err := b.d.manager.RunNew(ctx, sandbox.RunRequest{
		Params: p, FDs: fds, User: who.UID, Conn: who.Conn, Progress: progress, Started: started, Sent: sent,
	})
	if p.IfBuild != "" && errors.Is(err, sandbox.ErrClosed) { // it began to end since
		return api.RunResult{}, errEnding
	}
	return res, err
}

// errEnding refuses a call that was made without a look at who answers.
var errEnding = api.Errorf(api.FailedPrecondition, "the daemon is ending").WithField("if_build").
	WithHint("connect again, to the next one")

func (b *backend) Scopes() []api.ScopeInfo { return b.d.manager.Scopes() }

func (b *backend) ResetScope(ctx context.Context, who server.Actor, s api.Scope) (api.Sandbox, error) {
	return b.d.manager.ResetScope(ctx, who.UID, who.Conn, s)
}

func (b *backend) EndScope(ctx context.Context, who server.Actor, s api.Scope) (api.KillResult, error) {
	return b.d.manager.EndScope(ctx, who.UID, s)
}

func (b *backend) Get(ref string) (api.Sandbox, error) { return b.d.manager.Get(ref) }
func (b *backend) List(p api.ListParams) []api.Sandbox { return b.d.manager.List(p) }
func (b *backend) Signal(ctx context.Context, p api.SignalParams) error {
	return b.d.manager.Signal(ctx, p)
}

func (b *backend) Resize(p api.ResizeParams) error { return b.d.manager.Resize(p) }

func (b *backend) Claim(who server.Actor, ref string) (api.Sandbox, error) {
	return b.d.manager.Claim(ref, who.Conn)
}

func (b *backend) Kill(ctx context.Context, ref string) (api.KillResult, error) {
	return b.d.manager.Kill(ctx, ref)
}

func (b *backend) Remove(ctx context.Context, ref string) (api.KillResult, error) {
	return b.d.manager.Remove(ctx, ref)
}

func (b *backend) Pause(ctx context.Context, ref string) (api.Sandbox, error) {
	return b.d.manager.Pause(ctx, ref)
}

func (b *backend) StopSandbox(ctx context.Context, p api.StopParams) (api.StopResult, error) {
	return b.d.manager.StopSandbox(ctx, p)
}

func (b *backend) StartSandbox(ctx context.Context, who server.Actor, p api.StartParams, fds *jsonrpc.FDs) (api.Sandbox,
	error) {
	return b.d.manager.StartSandbox(ctx, p, who.Conn, fds)
}

func (b *backend) Resume(ctx context.Context, ref string) (api.Sandbox, error) {
	return b.d.manager.Resume(ctx, ref)
}

func (b *backend) Update(ctx context.Context, p api.UpdateParams) (api.Sandbox, error) {
	return b.d.manager.Update(ctx, p)
}

func (b *backend) Stats(ref string) (api.Stats, error)         { return b.d.manager.Stats(ref) }
func (b *backend) Processes(ref string) (api.Processes, error) { return b.d.manager.Processes(ref) }

func (b *backend) Run(ctx context.Context, _ server.Actor, p api.ExecParams, fds *jsonrpc.FDs,
	started func(string, int), sent func(func())) (api.ExecResult, error) {
	return b.d.manager.Run(ctx, sandbox.ExecRequest{Params: p, FDs: fds, Started: started, Sent: sent})
}

func (b *backend) Start(ctx context.Context, _ server.Actor, p api.ExecParams, fds *jsonrpc.FDs) (api.StartResult,
	error) {
	return b.d.manager.Start(ctx, sandbox.ExecRequest{Params: p, FDs: fds, Started: func(string, int) {}})
}

func (b *backend) Wait(ctx context.Context, p api.WaitParams) (api.ExecResult, error) {
	return b.d.manager.Wait(ctx, p)
}

func (b *backend) Read(ctx context.Context, p api.ReadParams) (api.Chunk, error) {
	return b.d.manager.Read(ctx, p)
}

func (b *backend) Attach(p api.AttachParams) (server.Output, error) {
	a, err := b.d.manager.Attach(p)
	if err != nil {
		return nil, err // and no typed nil
	}
	return a, nil
}

func (b *backend) Write(ctx context.Context, p api.WriteParams) error {
	return b.d.manager.Write(ctx, p)
}

func (b *backend) KillExec(ctx context.Context, p api.ExecRef) (api.ExecResult, error) {
	return b.d.manager.KillExec(ctx, p)
}

func (b *backend) CloseStdin(ctx context.Context, p api.ExecRef) error {
	return b.d.manager.CloseStdin(ctx, p)
}
func (b *backend) Execs(ref string) ([]api.Exec, error) { return b.d.manager.Execs(ref) }
func (b *backend) Exec(p api.ExecRef) (api.Exec, error) { return b.d.manager.Exec(p) }
