package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// What debug run can show.
const (
	showConfig  = "config"
	showMounts  = "mounts"
	showTimings = "timings"
)

func newDebug() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "debug",
		Short:   "Look at how sandboxes are made",
		GroupID: groupSystem,
		Args:    cobra.ArbitraryArgs,
		RunE:    parentOnly,
	}
	cmd.AddCommand(newDebugRun())
	return cmd
}

func newDebugRun() *cobra.Command {
	o := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --show config|mounts|timings [flags] [IMAGE] [--] [CMD...]",
		Short: "Run a command and show how its sandbox was made",
		Long: `Run a command as hutch run does, and print to standard output

  config    what the sandbox was launched with (libcontainer's configuration)
  mounts    the sandbox's mounts, as it sees them itself
  timings   how long each phase took, in milliseconds`,
		Example: `  hutch debug run --show config host -- true | jq .mounts
  hutch debug run --show timings -- true`,
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.show == "" {
				return cli.Usage(cmd.CommandPath(), errors.New("--show is missing"))
			}
			if o.json || o.detach || o.keep {
				return cli.Usage(cmd.CommandPath(), errors.New("--json, --keep and -d do not go with --show"))
			}
			image, command, err := imageAndCommand(cmd, args)
			if err != nil {
				return err
			}
			return runRun(cmd.Context(), o, image, command, cmd.OutOrStdout())
		},
	}
	cmd.Flags().Func("show", "`WHAT` to show: config, mounts or timings", func(v string) error {
		switch o.show = v; v {
		case showConfig, showMounts, showTimings:
			return nil
		}
		return fmt.Errorf("%q is not config, mounts or timings", v)
	})
	o.addRun(cmd)
	return cmd
}

// showBefore shows what is known before the command runs.
func (r *runner) showBefore(ctx context.Context, sb *api.Sandbox) error {
	switch r.flags.show {
	case showConfig:
		if sb.Debug == nil || len(sb.Debug.Config) == 0 {
			return api.Errorf(api.Unavailable, "the daemon did not say what it launched").WithOp("debug run")
		}
		var text bytes.Buffer
		if err := json.Indent(&text, sb.Debug.Config, "", "  "); err != nil {
			return fmt.Errorf("debug run: the configuration: %w", err)
		}
		_, err := fmt.Fprintln(r.out, text.String())
		return err
	case showMounts:
		res, err := r.client.ExecRun(ctx, api.ExecParams{Sandbox: sb.ID, Argv: []string{"cat", "/proc/self/mountinfo"}}, nil, nil)
		if err != nil {
			return err
		}
		if err := cli.Outcome(&res); err != nil {
			return fmt.Errorf("debug run: cat /proc/self/mountinfo: %w", err)
		}
		_, err = fmt.Fprint(r.out, cli.Printable(res.Stdout))
		return err
	}
	return nil
}

// showAfter shows what is known when everything is over.
func (r *runner) showAfter(sb *api.Sandbox) error {
	if r.flags.show != showTimings {
		return nil
	}
	t := cli.Table{Header: []string{"PHASE", "MS"}, Right: []bool{1: true}}
	addPhases(&t, sb.PhasesMS)
	addPhases(&t, r.times)
	t.Print(r.out, "", nil)
	return nil
}

// addPhases adds one row per phase, in alphabetical order: where phases overlap
// there is no other.
func addPhases(t *cli.Table, phases map[string]float64) {
	names := make([]string, 0, len(phases))
	for name := range phases {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Row(name, fmt.Sprintf("%.2f", phases[name]))
	}
}
