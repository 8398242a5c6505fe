package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newDebugShell() *cobra.Command {
	user := ""
	cmd := &cobra.Command{
		Use:   "shell [flags] SANDBOX",
		Short: "Open a shell in a sandbox that lives, and say first what it may do",
		Long: `Open a shell in a sandbox that lives. It is one of the sandbox's commands, behind all of its walls;
what these are is said first. A paused sandbox goes on.`,
		Args:        wantArgs(1, 1),
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			err := withDaemon(ctx, func(c *client.Client) error { return debugShell(ctx, c, signals, args[0], user) })
			return interrupted(ctx, err)
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "`USER[:GROUP]` inside (default: the sandbox's)")
	return cmd
}

func debugShell(ctx context.Context, c *client.Client, signals *cli.Signals, ref, user string) error {
	sb, err := c.GetSandbox(ctx, ref)
	if err != nil {
		return err
	}
	who, err := c.Peer(ctx)
	if err != nil {
		return err
	}
	argv, err := shellOf(ctx, c, sb.ID)
	if err != nil {
		return err
	}
	s := &story{out: os.Stderr, style: cli.StyleFor(os.Stderr)}
	s.head("sandbox %s of image %s, PID 1 is %d of the host's", sb.ID, sb.Image, sb.PID)
	s.walls(&sb)
	s.line("seccomp", "profile %s", sb.Seccomp)
	s.line("network", "mode %s; %s", sb.Network.Effective(), enforcementLine(&sb.Network.Enforcement))
	if text, err := json.Marshal(sb.Limits); err == nil {
		s.line("limits", "%s", text)
	}
	in := &session{
		client: c, signals: signals, owner: who.IDBase, interactive: true,
		tty: cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stdout), detachKeys: cli.DefaultDetachKeys,
	}
	res, err := in.run(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv, User: user})
	if err != nil {
		return err
	}
	tellDenials(os.Stderr, res, sb.ID)
	return cli.Outcome(res)
}

// shellOf is the best shell that a sandbox has.
func shellOf(ctx context.Context, c *client.Client, sandbox string) ([]string, error) {
	res, err := c.ExecRun(ctx,
		api.ExecParams{Sandbox: sandbox, Argv: []string{"sh", "-c", "command -v bash || command -v sh"}}, nil, nil)
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Code == api.NotFound && e.Field == "argv":
		return nil, api.Errorf(api.FailedPrecondition, "the image of sandbox %s has no shell", sandbox).
			WithOp("debug shell").
			WithHint("copy one that needs no libraries into it: hutch cp /bin/busybox %s:/tmp/sh, then hutch exec -it %s /tmp/sh sh", sandbox, sandbox)
	case err != nil:
		return nil, err
	}
	if path := strings.TrimSpace(res.Stdout); res.ExitCode == 0 && strings.HasPrefix(path, "/") {
		return []string{path}, nil
	}
	return []string{"sh"}, nil
}

func newDebugNet() *cobra.Command {
	return newDebugLive("net", "Tell what of the network a sandbox is refused and what fails, as it happens",
		`Print the network policy of a sandbox that lives, by what it is enforced and what each rule has let
pass and refused; then each refusal, with process, rule and how to allow it, and each connection that was
allowed and failed, those so far and new ones as they happen.`,
		[]api.EventKind{api.EventNetworkDenied, api.EventNetworkFailed},
		func(ctx context.Context, c *client.Client, sb *api.Sandbox, out io.Writer) error {
			n, err := c.Network(ctx, sb.ID)
			if err != nil {
				return err
			}
			return printNetwork(out, &n)
		})
}

func newDebugSyscalls() *cobra.Command {
	return newDebugLive("syscalls", "Tell what system calls a sandbox is refused, as it happens",
		`Print which seccomp profile the commands of a sandbox that lives are under; then each system call
that it refuses, those so far and new ones as they are made, with process, arguments, reason and how to
allow it. Calls that pass are not seen: hutch slows none of them down by looking. Of a sandbox that was
created to be debugged (hutch debug run, "debug" of sandbox.create) also each file that it is refused.`,
		[]api.EventKind{api.EventSyscallDenied, api.EventFileDenied},
		func(_ context.Context, _ *client.Client, sb *api.Sandbox, out io.Writer) error {
			_, err := fmt.Fprintf(out,
				"seccomp profile %s; its rules: hutch debug run --show seccomp --seccomp %s -- true\n", sb.Seccomp,
				sb.Seccomp)
			return err
		})
}

// newDebugLive is a command that prints head of a sandbox, and then its events of some kinds.
func newDebugLive(
	name, short, long string, kinds []api.EventKind, head func(context.Context, *client.Client, *api.Sandbox,
		io.Writer) error,
) *cobra.Command {
	noFollow, asJSON := false, false
	cmd := &cobra.Command{
		Use:   name + " [flags] SANDBOX",
		Short: short,
		Long:  long + "\nUntil interrupted or the sandbox ends; with -n what was refused so far.",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				sb, err := c.GetSandbox(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if !asJSON {
					if err := head(cmd.Context(), c, &sb, out); err != nil {
						return err
					}
				}
				return watch(cmd.Context(), c, sb.ID, kinds, !noFollow, asJSON, out)
			})
		},
	}
	cmd.Flags().BoolVarP(&noFollow, "no-follow", "n", false, "print what was refused so far, and end")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the events, one JSON object a line")
	return cmd
}

// watch prints events of some kinds until the sandbox's end.
func watch(ctx context.Context, c *client.Client, id string, kinds []api.EventKind, follow, asJSON bool,
	out io.Writer) error {
	first := int64(1)
	events, err := c.Subscribe(ctx, api.SubscribeParams{
		Sandbox: id, Kinds: append([]api.EventKind{api.EventSandboxState}, kinds...), FromSeq: &first, Follow: &follow,
	})
	if err != nil {
		return err
	}
	defer events.Close()
	s := &story{out: out, style: cli.StyleFor(os.Stdout)}
	lines := &eventsFlags{json: true}
	for e, err := range events.All(ctx) {
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(kinds, e.Kind):
			d, untold, ok := denialOf(&e)
			switch {
			case asJSON:
				err = lines.print(out, &e)
			case ok && !d.Probe: // hutch why --verbose lists those
				s.denied(e.Time.Local().Format(time.TimeOnly), &d, argsOf(&e))
				if untold > 0 {
					s.line("", "          and %d more, which came too fast to be recorded", untold)
				}
			}
			if err != nil {
				return err
			}
		case e.Kind == api.EventSandboxState:
			var d api.StateEvent
			if json.Unmarshal(e.Data, &d) == nil && (d.State == api.StateRemoved || d.State == api.Stopped ||
				d.State == api.Failed) {
				return nil
			}
		}
	}
	return nil
}
