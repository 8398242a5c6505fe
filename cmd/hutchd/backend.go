package main

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-sh/hutch/internal/eventlog"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
)

func (d *daemon) info(context.Context, api.Empty) (api.Info, error) {
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
		Counts: api.Counts{Sandboxes: sandboxes, Execs: execs, Images: len(list), Ready: d.manager.Ahead.Ready(),
			Removing: d.manager.Removing()},
		Paths: d.cfg.Paths,
		Exec:  s.Exec, Defaults: d.manager.Meters.Defaults(), Quotas: s.Quotas, Network: s.Network.Settled(),
		Mode: d.modes.Settings().Mode, HostExecution: d.modes.Settings().Host,
	}, nil
}

func (d *daemon) doctor(ctx context.Context, _ api.Empty) (api.Doctor, error) {
	a, err := d.question(ctx, monitorapi.Message{Probe: &monitorapi.Probe{}})
	if err != nil {
		return api.Doctor{}, err
	}
	if a.Probed == nil {
		return api.Doctor{}, errors.New("the monitor answered something else than probes")
	}
	return api.Doctor{Checks: append(a.Probed.Checks, d.host.EnforcementCheck())}, nil
}

func (d *daemon) shutdown(_ context.Context, p api.ShutdownParams) error {
	switch p.Mode {
	case "", "keep":
		if n, _, _ := d.manager.Counts(); n > 0 && d.cfg.Private {
			return api.Errorf(api.FailedPrecondition, "a private daemon cannot leave its %d sandboxes to another", n).
				WithHint("remove them first, or use mode kill")
		}
	case "kill":
	default:
		return api.Errorf(api.InvalidArgument, "mode: %q is no mode", p.Mode).WithField("mode").
			WithHint("use keep or kill")
	}
	d.end(p.Mode != "kill", "shut down by a client")
	return nil
}

func (d *daemon) gc(ctx context.Context, _ api.Empty) (api.GCResult, error) {
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
	return api.GCResult{Removed: removed, Bytes: freed}, nil
}

// runNew runs a command in a sandbox of its own.
func (d *daemon) runNew(ctx context.Context, c *server.Call, p api.RunParams) (api.RunResult, error) {
	if err := server.CheckBuild(p.IfBuild); err != nil {
		return api.RunResult{}, err
	}
	if p.IfState != "" && p.IfState != d.cfg.Paths.State {
		return api.RunResult{}, api.Errorf(api.FailedPrecondition, "the daemon keeps its state in %s",
			d.cfg.Paths.State).WithField("if_state")
	}
	if p.IfBuild != "" && d.ending.Load() { // system.info would have said so
		return api.RunResult{}, errEnding
	}
	res, err := d.manager.RunNew(ctx, sandbox.RunRequest{
		Params: p, FDs: c.FDs, User: c.UID, Conn: c.Conn, Progress: c.Progress, Started: c.StartedIn, Sent: c.AfterSent,
	})
	if p.IfBuild != "" && errors.Is(err, sandbox.ErrClosed) { // it began to end since
		return api.RunResult{}, errEnding
	}
	return res, err
}

// errEnding refuses a call that was made without a look at who answers.
var errEnding = api.Errorf(api.FailedPrecondition, "the daemon is ending").WithField("if_build").
	WithHint("connect again, to the next one")

// attach follows an exec's output.
func (d *daemon) attach(p api.AttachParams) (server.Output, error) {
	a, err := d.manager.Execs.Attach(p)
	if err != nil {
		return nil, err // and no typed nil
	}
	return a, nil
}
