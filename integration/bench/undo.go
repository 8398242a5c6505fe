package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// undoSubjects measure a call with a checkpoint before it, of a sandbox that has written 10 MB in 1,000 files;
// tool-command is the call alone.
func undoSubjects() []Subject {
	const rewrite = `head -c 10240 /dev/urandom >/files/1/1; sleep 0.03` // until its time tells of later changes
	return []Subject{
		{Name: "checkpoint-unchanged",
			About: "sandbox_run_command of true with undo, 1,000 files of 10 KB, none changed since the last",
			Setup: checkpoints("")},
		{Name: "checkpoint-10mb", About: "the same where one of them has changed", Setup: checkpoints(rewrite)},
		{Name: "checkpoint-beside",
			About: "the same as checkpoint-10mb beside a process that has to stand still for it",
			Setup: checkpoints(rewrite + "; pidof sleep >/dev/null || { sleep 1000 >/dev/null 2>&1 & }")},
	}
}

// fillFiles writes 10 MB in 1,000 files.
const fillFiles = `mkdir /files; cd /files; for i in $(seq 0 49); do mkdir $i; done; for i in $(seq 1000); do head -c 10240 /dev/urandom >$((i % 50))/$i; done`

// checkpoints measures calls behind a command that is not measured.
func checkpoints(before string) func(context.Context, *Host) (*Prepared, error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		c, err := h.dialShared(ctx)
		if err != nil {
			return nil, err
		}
		sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Undo: true}}, nil, nil)
		if err != nil {
			return nil, err
		}
		run := func(ctx context.Context, command string) error {
			r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Command: command}, nil, nil)
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("%s: %+v", command, r)
			}
			return err
		}
		if err := run(ctx, fillFiles+"; sleep 0.03"); err != nil {
			return nil, err
		}
		one := func(ctx context.Context) (time.Duration, error) {
			if before != "" {
				if err := run(ctx, before); err != nil {
					return 0, err
				}
			}
			start := time.Now()
			r, err := c.CallTool(ctx, api.ToolCallParams{Sandbox: sb.ID, Name: api.ToolNameRunCommand,
				Arguments: json.RawMessage(`{"argv":["/bin/true"]}`)}, nil)
			took := time.Since(start)
			if err == nil && (r.IsError || !r.Undo) {
				err = fmt.Errorf("%+v", r)
			}
			return took, err
		}
		if _, err := one(ctx); err != nil { // the first copies all
			return nil, err
		}
		return &Prepared{
			Command: "tools.call by the Go client", Note: fmt.Sprintf("the median of %d calls in a row", callsPerRun),
			Run: func(ctx context.Context) (Sample, error) {
				times, err := calls(ctx, callsPerRun, one)
				if err != nil {
					return Sample{}, err
				}
				return Sample{Wall: times[len(times)/2]}, nil
			},
		}, nil
	}
}
