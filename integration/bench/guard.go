package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// guardSubjects are what the guard of a folder in mode rw costs, beside the same without.
func guardSubjects() []Subject {
	return []Subject{
		{Name: "status-host", About: "git status of 50,000 files on the host", Setup: setupStatusHost},
		{Name: "workspace-status", About: "the same in a sandbox with the folder as its workspace in mode rw",
			Setup: setupWorkspaceStatus},
		{Name: "guard-create-tell",
			About: "10,000 files out of a tar archive into a workspace where new names are reported",
			Setup: setupGuardCreate(api.GuardTell)},
		{Name: "guard-create", About: "the same where PID 1 makes new names", Setup: setupGuardCreate(api.GuardRefuse)},
		{Name: "guard-walk-off", About: "a sandbox with a workspace of 50,000 files without a guard",
			Setup: setupGuardWalk(true)},
		{Name: "guard-walk", About: "the same with it: a look at all folders", Setup: setupGuardWalk(false)},
	}
}

// gitFolder makes a repository of 500 folders with 100 files each.
func (h *Host) gitFolder(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "hutch-bench-project-")
	if err != nil {
		return "", err
	}
	h.undo.Add(func() error { return os.RemoveAll(dir) })
	for i := range 500 {
		folder := filepath.Join(dir, fmt.Sprintf("d%03d", i))
		if err := os.Mkdir(folder, 0o755); err != nil {
			return "", err
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("f%02d", j)), []byte("text\n"),
				0o644); err != nil {
				return "", err
			}
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"}, {"status"}} {
		if out, err := gitAt(ctx, dir, args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("git %q: %w: %s", args, err, out)
		}
	}
	// The daemon lives as another user than root: git in the sandbox is to write its index, as people's does.
	if out, err := exec.CommandContext(ctx, "chmod", "-R", "a+rwX", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("chmod: %w: %s", err, out)
	}
	return dir, nil
}

func gitAt(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	return cmd
}

func setupStatusHost(ctx context.Context, h *Host) (*Prepared, error) {
	dir, err := h.gitFolder(ctx)
	if err != nil {
		return nil, err
	}
	return &Prepared{Command: "git status", Run: func(ctx context.Context) (Sample, error) {
		start := time.Now()
		err := gitAt(ctx, dir, "status", "--short").Run()
		return Sample{Wall: time.Since(start)}, err
	}}, nil
}

// inWorkspace runs a command in a sandbox with a folder in mode rw.
func (h *Host) inWorkspace(ctx context.Context, w api.Workspace, before, command string) (*Prepared, error) {
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, err
	}
	w.Mode = api.ModeRW
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Workspace: &w}}, nil, nil)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, command string) error {
		r, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Command: command, Cwd: "/workspace",
			Env: map[string]string{
				"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
			}}, nil, nil)
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("%s: %+v", command, r)
		}
		return err
	}
	return &Prepared{Command: command + " by exec.run", Run: func(ctx context.Context) (Sample, error) {
		if before != "" {
			if err := run(ctx, before); err != nil {
				return Sample{}, err
			}
		}
		start := time.Now()
		err := run(ctx, command)
		return Sample{Wall: time.Since(start)}, err
	}}, nil
}

func setupWorkspaceStatus(ctx context.Context, h *Host) (*Prepared, error) {
	dir, err := h.gitFolder(ctx)
	if err != nil {
		return nil, err
	}
	return h.inWorkspace(ctx, api.Workspace{Path: dir}, "", "git status --short")
}

func setupGuardCreate(mode api.GuardNew) func(context.Context, *Host) (*Prepared, error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		dir, err := os.MkdirTemp("", "hutch-bench-work-")
		if err != nil {
			return nil, err
		}
		h.undo.Add(func() error { return os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o777); err != nil {
			return nil, err
		}
		const archive = "test -e /tmp/a.tar || { mkdir /tmp/a && cd /tmp/a && i=0; while [ $i -lt 10000 ]; do echo text >f$i; i=$((i+1)); done; tar cf /tmp/a.tar .; }; rm -rf /workspace/d; mkdir /workspace/d"
		return h.inWorkspace(ctx, api.Workspace{Path: dir, GuardNew: mode}, archive,
			"tar xf /tmp/a.tar --no-same-owner -C /workspace/d")
	}
}

func setupGuardWalk(off bool) func(context.Context, *Host) (*Prepared, error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		dir, err := h.gitFolder(ctx)
		if err != nil {
			return nil, err
		}
		c, err := h.dialShared(ctx)
		if err != nil {
			return nil, err
		}
		w := &api.Workspace{Path: dir, Mode: api.ModeRW}
		if off {
			w.Unguarded = []string{api.AllNames}
		}
		return &Prepared{Command: "sandbox.create", Run: func(ctx context.Context) (Sample, error) {
			start := time.Now()
			sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host", Workspace: w}}, nil, nil)
			took := time.Since(start)
			if err == nil {
				_, err = c.Remove(ctx, sb.ID)
			}
			return Sample{Wall: took}, err
		}}, nil
	}
}
