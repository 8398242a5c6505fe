package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// debugResult is the object that debug run --json prints.
type debugResult struct {
	Sandbox api.Sandbox     `json:"sandbox"` // with what it was launched, "debug"
	Mounts  string          `json:"mounts"`  // its mountinfo, as it sees it itself
	Events  []api.Event     `json:"events"`  // while the command ran
	Result  *api.ExecResult `json:"result"`
	// PhasesMS are the times as the command line sees them.
	PhasesMS map[string]float64 `json:"phases_ms"`
}

// narrateJSON is narrate for programs.
func (r *runner) narrateJSON(ctx context.Context, sb *api.Sandbox, argv []string) error {
	d := debugResult{Sandbox: *sb, Events: []api.Event{}}
	mounts, err := r.mounts(ctx, sb)
	if err != nil {
		return err
	}
	d.Mounts = mounts
	events, err := r.whatHappens(ctx, sb)
	if err != nil {
		return err
	}
	defer events.Close()
	keep := func(e *api.Event) {
		e.Subscription = "" // means something on its connection only
		d.Events = append(d.Events, *e)
	}
	err = meanwhile(ctx, events, keep, func() error {
		done := r.phase("exec")
		s := &session{
			client: r.client, signals: r.signals, owner: r.peer.IDBase, interactive: r.flags.interactive,
			private: r.flags.private, owned: true,
		}
		defer func() { r.client = s.conn() }()
		res, err := s.capture(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv, TimeoutS: r.flags.timeout})
		done()
		d.Result = res
		return err
	})
	if err != nil {
		return err
	}
	d.PhasesMS = r.times
	if err := printJSON(r.out, d); err != nil {
		return err
	}
	return quiet(cli.Outcome(d.Result))
}
