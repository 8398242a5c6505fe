package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// agentSubjects are what agents use, over a warm connection: the median of calls in a row.
func agentSubjects() []Subject {
	tool := func(name, arguments string) func(ctx context.Context, c *client.Client, sandbox string) error {
		return func(ctx context.Context, c *client.Client, sandbox string) error {
			r, err := c.CallTool(ctx, api.ToolCallParams{Sandbox: sandbox, Name: name,
				Arguments: json.RawMessage(arguments)}, nil)
			if err == nil && r.IsError {
				err = fmt.Errorf("%s: %s", name, r.Content[0].Text)
			}
			return err
		}
	}
	return []Subject{
		{Name: "tool-write", About: "sandbox_write_file of 1 KiB",
			Setup: agentCalls("tools.call", tool(api.ToolNameWriteFile, `{"path":"/tmp/f","content":"`+
				strings.Repeat("x", 1024)+`"}`))},
		{Name: "tool-list", About: "sandbox_list_directory of /etc",
			Setup: agentCalls("tools.call", tool(api.ToolNameListDirectory, `{"path":"/etc"}`))},
		{Name: "tool-command", About: "sandbox_run_command of true",
			Setup: agentCalls("tools.call", tool(api.ToolNameRunCommand, `{"argv":["/bin/true"]}`))},
		{Name: "code-python", About: "code.run of 1+1 in a kept Python",
			Setup: agentCalls("code.run", func(ctx context.Context, c *client.Client, sandbox string) error {
				r, err := c.RunCode(ctx, api.CodeParams{Sandbox: sandbox, Language: "python", Code: "1+1"})
				if err == nil && r.Text != "2" {
					err = fmt.Errorf("code.run: %+v", r)
				}
				return err
			})},
		{Name: "workspace-diff", About: "workspace.diff of 10 changes to a folder of 50,000 files",
			Setup: setupWorkspaceDiff},
	}
}

// agentCalls measures calls in one sandbox.
func agentCalls(method string, one func(ctx context.Context, c *client.Client,
	sandbox string) error) func(context.Context, *Host) (*Prepared, error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		c, sandbox, err := h.liveSandbox(ctx)
		if err != nil {
			return nil, err
		}
		return timedCalls(method, func(ctx context.Context) error { return one(ctx, c, sandbox) }), nil
	}
}

func timedCalls(method string, one func(ctx context.Context) error) *Prepared {
	return &Prepared{
		Command: method + " by the Go client",
		Note:    fmt.Sprintf("the median of %d calls in a row", callsPerRun),
		Run: func(ctx context.Context) (Sample, error) {
			times, err := calls(ctx, callsPerRun, func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				err := one(ctx)
				return time.Since(start), err
			})
			if err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		},
	}
}

func setupWorkspaceDiff(ctx context.Context, h *Host) (*Prepared, error) {
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "hutch-bench-project-")
	if err != nil {
		return nil, err
	}
	h.undo.Add(func() error { return os.RemoveAll(dir) })
	for i := range 500 {
		folder := filepath.Join(dir, fmt.Sprintf("d%03d", i))
		if err := os.Mkdir(folder, 0o755); err != nil {
			return nil, err
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("f%02d", j)), []byte("text\n"),
				0o644); err != nil {
				return nil, err
			}
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, err
	}
	sb, err := c.CreateSandbox(ctx,
		api.CreateParams{Spec: api.Spec{Image: "host", Workspace: &api.Workspace{Path: dir, Mode: api.ModeOverlay}}},
		nil, nil)
	if err != nil {
		return nil, err
	}
	if r, err := c.ExecRun(ctx,
		api.ExecParams{Sandbox: sb.ID, Command: "for i in 0 1 2 3 4 5 6 7 8 9; do echo made >made$i; done"}, nil,
		nil); err != nil || r.ExitCode != 0 {
		return nil, errors.Join(fmt.Errorf("change files: %+v", r), err)
	}
	return timedCalls("workspace.diff", func(ctx context.Context) error {
		d, err := c.DiffWorkspace(ctx, api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb.ID},
			Unified: true})
		if err == nil && len(d.Changes) != 10 {
			err = fmt.Errorf("%d changes", len(d.Changes))
		}
		return err
	}), nil
}
