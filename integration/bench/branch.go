package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// forks is how many are made at once.
const forks = 64

// branchSubjects measure what stops, keeps and multiplies a sandbox that has written 10 MB in 1,000 files; hutch-create
// is a sandbox without any.
func branchSubjects() []Subject {
	return []Subject{
		{Name: "pause-resume", About: "sandbox.pause and sandbox.resume beside a process that runs",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareBranch(ctx, callsPerRun,
					func(ctx context.Context, c *client.Client, sb string) (func() error, error) {
						_, err := c.Pause(ctx, sb)
						if err == nil {
							_, err = c.Resume(ctx, sb)
						}
						return nil, err
					})
			}},
		{Name: "copy-10mb", About: "cp -a of 10 MB in 1,000 files: the floor of a snapshot", Setup: setupCopy},
		{Name: "snapshot-10mb", About: "snapshot.create of 10 MB in 1,000 files",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareBranch(ctx, 5, func(ctx context.Context, c *client.Client, sb string) (func() error,
					error) {
					sn, err := c.CreateSnapshot(ctx, api.SnapshotCreateParams{Sandbox: sb})
					return func() error { return c.RemoveSnapshot(ctx, sn.ID) }, err
				})
			}},
		{Name: "fork-snapshot-10mb", About: "sandbox.fork of that snapshot",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				sn := ""
				return h.prepareBranch(ctx, 5, func(ctx context.Context, c *client.Client, sb string) (func() error,
					error) {
					if sn == "" {
						made, err := c.CreateSnapshot(ctx, api.SnapshotCreateParams{Sandbox: sb})
						if err != nil {
							return nil, err
						}
						sn = made.ID
					}
					return fork(ctx, c, api.ForkParams{Snapshot: sn})
				})
			}},
		{Name: "fork-10mb", About: "sandbox.fork of the running sandbox",
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareBranch(ctx, 5, forkTimes(1))
			}},
		{Name: "fork-64", About: fmt.Sprintf("%d forks of the same at once", forks), Named: true,
			Setup: func(ctx context.Context, h *Host) (*Prepared, error) {
				return h.prepareBranch(ctx, 1, forkTimes(forks))
			}},
	}
}

// branching does something with a sandbox. What it returns undoes that, and is not measured.
type branching func(ctx context.Context, c *client.Client, sb string) (undo func() error, err error)

func forkTimes(n int) branching {
	return func(ctx context.Context, c *client.Client, sb string) (func() error, error) {
		return fork(ctx, c, api.ForkParams{Sandbox: sb, Count: n})
	}
}

func fork(ctx context.Context, c *client.Client, p api.ForkParams) (undo func() error, err error) {
	made, err := c.Fork(ctx, p)
	return func() error {
		for _, f := range made.Sandboxes {
			if _, err := c.Remove(ctx, f.ID); err != nil {
				return err
			}
		}
		return nil
	}, err
}

// settled waits until what was removed behind replies is gone.
func settled(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, fullLimit)
	defer cancel()
	for { // nobody is told that either
		info, err := c.Info(ctx)
		if err != nil || info.Counts.Removing == 0 {
			return err
		}
		select {
		case <-time.After(settleRest):
		case <-ctx.Done():
			return fmt.Errorf("%d sandboxes and layers are still being removed: %w", info.Counts.Removing,
				context.Cause(ctx))
		}
	}
}

const settleRest = 5 * time.Millisecond

// prepareBranch measures the median of so many in a row.
func (h *Host) prepareBranch(ctx context.Context, n int, do branching) (*Prepared, error) {
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	const fill = fillFiles + "; sleep 1000 >/dev/null 2>&1 &"
	if r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Command: fill}, nil, nil); err != nil ||
		r.ExitCode != 0 {
		return nil, errors.Join(fmt.Errorf("write 10 MB: %+v", r), err)
	}
	one := func(ctx context.Context) (time.Duration, error) {
		start := time.Now()
		undo, err := do(ctx, c, sb.ID)
		took := time.Since(start)
		if err == nil && undo != nil {
			err = errors.Join(undo(), settled(ctx, c))
		}
		return took, err
	}
	return &Prepared{
		Command: "JSON-RPC by the Go client",
		Note:    fmt.Sprintf("the median of %d calls in a row, each when what the last one made is gone, as cp's copies are", n),
		Run: func(ctx context.Context) (Sample, error) {
			times, err := calls(ctx, n, one)
			if err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		},
	}, nil
}
