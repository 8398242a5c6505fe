package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// execFlags are the flags of exec.
type execFlags struct {
	interactive, tty, json, detach bool

	attach        bool // instead of a command: to an exec
	detachKeys    string
	env, envFiles []string
	params        api.ExecParams
	limits        api.Limits
	mode          modeFlag
	network       netFlags
}

func newExec() *cobra.Command {
	o := &execFlags{}
	cmd := &cobra.Command{
		Use: "exec [flags] SANDBOX [--] CMD... | exec --attach EXEC",
		Long: `Run a command in a sandbox that exists, given by its id or name. The image's
Entrypoint plays no part. Standard input and signals are as in hutch run.`,
		Example: `  hutch exec box -- ls -l
  hutch exec -it box bash
  hutch exec --timeout 10 -e DEBUG=1 box ./test.sh`,
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.attach {
				if len(args) != 1 {
					return cli.Usage(cmd.CommandPath(), errors.New("--attach takes the id of one exec"))
				}
				return o.runAttach(cmd.Context(), args[0])
			}
			name, command := cli.SplitCommand(args, cmd.ArgsLenAtDash())
			switch {
			case name == "":
				return cli.Usage(cmd.CommandPath(), errors.New("no sandbox is given"))
			case len(command) == 0:
				return cli.Usage(cmd.CommandPath(), errors.New("no command is given"))
			case o.detach && (o.tty || o.interactive || o.json):
				return cli.Usage(cmd.CommandPath(), errors.New("-d does not go with -i, -t or --json"))
			case o.json && o.tty:
				return cli.Usage(cmd.CommandPath(),
					errors.New("--json does not go with -t: a terminal's output is passed, not captured"))
			}
			o.params.Sandbox, o.params.Argv = name, command
			o.mode.read(cmd.Flags())
			return runExec(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.BoolVarP(&o.interactive, "interactive", "i", false, "connect standard input also when it is a terminal")
	fs.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal, connected to yours")
	fs.BoolVar(&o.attach, "attach", false, "come back to a terminal that was left with the detach keys")
	addDetachKeys(fs, &o.detachKeys)
	fs.BoolVarP(&o.detach, "detach", "d", false, "leave the command running in the background and print its id")
	fs.StringArrayVarP(&o.env, "env", "e", nil, "environment, `NAME[=VALUE]`; may be repeated")
	fs.StringArrayVar(&o.envFiles, "env-file", nil, "`FILE` with a NAME[=VALUE] a line")
	fs.StringVarP(&o.params.User, "user", "u", "", "`USER[:GROUP]` inside (default: the sandbox's)")
	fs.FuncP("workdir", "w", "working `DIR` inside (default: the sandbox's)", func(v string) error {
		o.params.Cwd = v
		return cli.SandboxPath("workdir", v)
	})
	fs.Func("timeout", "kill the command after `TIME`: seconds, or 1m30s (default: the sandbox's, else 3m; with -t or -d none)", func(v string) error {
		seconds, err := cli.ParseTimeout(v)
		o.params.TimeoutS = &seconds
		return err
	})
	addExecLimits(fs, &o.limits)
	o.network.addNarrow(fs)
	o.mode.add(fs)
	fs.BoolVar(&o.json, "json", false, "print one JSON object with output and exit code; input with -i only")
	return cmd
}

func runExec(ctx context.Context, o *execFlags, out io.Writer) (err error) {
	if o.params.Env, err = cli.Env(o.envFiles, o.env); err != nil {
		return api.Errorf(api.InvalidArgument, "%w", err).WithOp("exec")
	}
	if o.limits != (api.Limits{}) {
		o.params.Limits = &o.limits
	}
	if p, err := o.network.policy("hutch exec"); err != nil {
		return err
	} else if !p.IsZero() {
		o.params.Network = &p
	}
	done, decision, err := o.hostCommand().try(ctx, out)
	if done || err != nil {
		return err
	}
	if o.detach {
		return o.runDetached(ctx, out)
	}
	ctx, signals := cli.CatchSignals(ctx)
	defer signals.Stop()
	err = withDaemon(ctx, func(c *client.Client) error {
		who, err := c.Peer(ctx)
		if err != nil {
			return err
		}
		s := &session{client: c, signals: signals, owner: who.IDBase, interactive: o.interactive, tty: o.tty,
			detachKeys: o.detachKeys}
		if !o.json {
			res, err := s.run(ctx, o.params)
			if err != nil {
				return err
			}
			tellDenials(os.Stderr, res, o.params.Sandbox)
			if hint := anewFor(res.Denials); hint != "" && res.ExitCode != 0 {
				fmt.Fprintln(os.Stderr, "hutch: network:", hint)
			}
			if res.Policy != "" {
				fmt.Fprintln(os.Stderr, "hutch: refused again and again, by this policy:", cli.Line(res.Policy))
			}
			return cli.Outcome(res)
		}
		res, err := s.capture(ctx, o.params)
		if err != nil {
			return err
		}
		var about any = res
		if decision != nil {
			about = hostResult{res, decision.Decision, decision}
		}
		if err := printJSON(out, about); err != nil {
			return err
		}
		return quiet(cli.Outcome(res))
	})
	return interrupted(ctx, err)
}

func (o *execFlags) runDetached(ctx context.Context, out io.Writer) error {
	return withDaemon(ctx, func(c *client.Client) error {
		o.params.Background = true
		res, err := c.ExecStart(ctx, o.params, nil)
		if err != nil {
			return cli.StartFailure(err)
		}
		_, err = fmt.Fprintln(out, res.Exec)
		return err
	})
}

// quiet keeps an outcome's exit code and drops its text, which the object that
// was printed holds.
func quiet(err error) error {
	var exit *cli.Exit
	if errors.As(err, &exit) {
		return &cli.Exit{Code: exit.Code}
	}
	return err
}
