package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Hostile loads of another sandbox, which has the limits that every sandbox has.
const (
	// spin keeps every CPU busy, and does not end when it is asked to.
	spin = `trap '' TERM; for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait`
	// bomb forks until it may not, and goes on where a shell has given up.
	bomb = `trap '' TERM; bomb() { while :; do bomb & done 2>/dev/null; }; while :; do bomb; done 2>/dev/null`
)

func setupHutchCallSpin(ctx context.Context, h *Host) (*Prepared, error) {
	return h.prepareBeside(ctx, "busy loops on all CPUs", spin)
}

func setupHutchCallBomb(ctx context.Context, h *Host) (*Prepared, error) {
	return h.prepareBeside(ctx, "a fork bomb", bomb)
}

// prepareBeside measures calls beside a hostile neighbour. Where sandboxes have no cgroups
// nothing is promised.
func (h *Host) prepareBeside(ctx context.Context, what, load string) (*Prepared, error) {
	c, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	neighbour, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	if neighbour.Isolation.Cgroups == "none" {
		return nil, &Unavailable{HostKind, "there are no cgroups: nothing keeps a neighbour's CPU use apart",
			"`hutch doctor` says what to change"}
	}
	return &Prepared{
		Command: "exec.run {argv: [/bin/true]} by the Go client",
		Note:    fmt.Sprintf("the median of %d calls in a row, beside %s in another sandbox", callsPerRun, what),
		Run: func(ctx context.Context) (s Sample, err error) {
			started, err := c.ExecStart(ctx, api.ExecParams{Sandbox: neighbour.ID, Command: load, Background: true},
				nil)
			if err != nil {
				return s, err
			}
			defer func() {
				_, kerr := c.ExecKill(ctx, started.Exec)
				err = errors.Join(err, kerr)
			}()
			times, err := calls(ctx, callsPerRun,
				func(ctx context.Context) (time.Duration, error) { return call(ctx, c, sandbox, nil) })
			if err != nil {
				return s, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		},
	}, nil
}
