package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// breakpoint stops the creation of a sandbox behind one phase and opens a shell there. A nil one
// never does.
type breakpoint struct {
	phase string
	hold  *os.File // the creation goes on when this is closed
	held  *os.File // its other end, for the daemon
	err   error    // of the shell
}

// inside reports whether commands run in the sandbox when the phase is over: then the shell is
// one of them. Before, its walls are not all up, and nothing of the image may run.
func (b *breakpoint) inside() bool {
	return b != nil && slices.Index(api.DebugPhases, b.phase) >= slices.Index(api.DebugPhases, "guest")
}

// outside is b, or nil when its shell is one inside.
func (b *breakpoint) outside() *breakpoint {
	if b.inside() {
		return nil
	}
	return b
}

// arm makes p stop behind the phase, and returns what to do with news. pulled takes what they showed off the screen.
func (b *breakpoint) arm(ctx context.Context, p *api.CreateParams, files *[]*os.File, news func(api.Progress),
	pulled func()) (func(api.Progress), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("debug run: %w", err)
	}
	b.hold, b.held = w, r
	*files = append(*files, r)
	p.Break = &api.Break{Phase: b.phase, FD: len(*files) - 1}
	return func(n api.Progress) {
		switch {
		case n.Kind == api.ProgressBreak && n.Break != nil:
			pulled()
			b.err = b.shell(ctx, n.Break)
			b.close()
		case news != nil:
			news(n)
		}
	}, nil
}

func (b *breakpoint) close() {
	_ = b.hold.Close()
	_ = b.held.Close()
}

// shell runs the caller's own shell beside what there is of the sandbox.
func (b *breakpoint) shell(ctx context.Context, at *api.BreakPoint) error {
	s := &story{out: os.Stderr, style: cli.StyleFor(os.Stderr)}
	s.head("stopped behind %s", b.phase)
	s.line("", "this is your own shell, on the host and outside of the sandbox; when it ends, the creation goes on")
	env := []string{"HUTCH_SANDBOX=" + at.Sandbox, "HUTCH_FOLDER=" + at.Folder}
	s.line("HUTCH_FOLDER", "%s, where it is kept", at.Folder)
	if at.PID > 0 {
		env = append(env, fmt.Sprintf("HUTCH_PID=%d", at.PID))
		s.line("HUTCH_PID", "%d is its PID 1: look at /proc/%d/mountinfo, status, ns, root", at.PID, at.PID)
	}
	if at.Cgroup != "" {
		env = append(env, "HUTCH_CGROUP="+at.Cgroup)
		s.line("HUTCH_CGROUP", "%s, below /sys/fs/cgroup", at.Cgroup)
	}
	program := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), env...)
	if st, err := os.Stat(at.Folder); err == nil && st.IsDir() { // not yet behind image
		cmd.Dir = at.Folder
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		// Its exit code is that of its last command, and means nothing here.
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			return fmt.Errorf("debug run: the shell behind %s: %w", b.phase, err)
		}
	}
	return nil
}

// stopInside opens a shell in the sandbox, behind a phase after which that can be.
func (r *runner) stopInside(ctx context.Context, sb *api.Sandbox, b *breakpoint) error {
	s := &story{out: os.Stderr, style: cli.StyleFor(os.Stderr)}
	s.head("stopped behind %s", b.phase)
	s.line("", "this is a shell in the sandbox, behind its walls; when it ends, the command runs")
	argv, err := shellOf(ctx, r.client, sb.ID)
	if err != nil {
		return err
	}
	in := &session{
		client: r.client, signals: r.signals, owner: r.peer.IDBase, private: r.flags.private, owned: true,
		interactive: true, tty: cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stdout),
	}
	_, err = in.run(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv})
	r.client = in.conn()
	return err
}

// breakFlag reads --break.
func (o *runFlags) breakFlag(v string) error {
	if !slices.Contains(api.DebugPhases, v) {
		return fmt.Errorf("%q is none of %s", v, strings.Join(api.DebugPhases, ", "))
	}
	o.breakAt = &breakpoint{phase: v}
	return nil
}
