package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// What debug run can show instead of telling the story.
const (
	showConfig  = "config"
	showMounts  = "mounts"
	showSeccomp = "seccomp"
	showPolicy  = "policy"
	showTimings = "timings"
)

var shown = []string{showConfig, showMounts, showSeccomp, showPolicy, showTimings}

func newDebug() *cobra.Command {
	cmd := &cobra.Command{
		Use:  "debug",
		Args: cobra.ArbitraryArgs,
		RunE: parentOnly,
	}
	cmd.AddCommand(newDebugRun(), newDebugShell(), newDebugNet(), newDebugSyscalls())
	return cmd
}

func newDebugRun() *cobra.Command {
	o := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [--show WHAT] [flags] [IMAGE] [--] [CMD...]",
		Short: "Run a command and tell how its sandbox was made and what it was refused",
		Long: `Run a command as hutch run does, on a daemon of its own, and tell on standard error
each step with the time it took, what stands around the sandbox, what the command is
refused as it happens, and how it ended. Or, with --show, print to standard output

  config    what the sandbox was launched with (libcontainer's configuration)
  mounts    the sandbox's mounts, as it sees them itself
  seccomp   which system calls commands may make, with a reason for each rule
  policy    the network policy in force, and by what
  timings   how long each phase took, in milliseconds

With --json all of it is one object: how it was made, what stands around it, each event meanwhile,
and the command's result with its output.

With --break PHASE it stops behind a phase of the creation and opens a shell: your own on the
host, with HUTCH_SANDBOX, HUTCH_FOLDER, HUTCH_PID and HUTCH_CGROUP, as long as the walls are not all
up; from guest on one in the sandbox. It goes on when the shell ends.`,
		Example: `  hutch debug run -- curl -sS https://example.org
  hutch debug run --show config host -- true | jq .mounts
  hutch debug run --break launch host -- true
  hutch debug run --show seccomp --seccomp strict -- true`,
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.detach || o.keep:
				return cli.Usage(cmd.CommandPath(), errors.New("--keep and -d do not go with debug run"))
			case o.json && o.show != "":
				return cli.Usage(cmd.CommandPath(), errors.New("--json shows everything: leave out --show"))
			}
			image, command, err := imageAndCommand(cmd, args)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("private") {
				o.private = true
			}
			o.debug = true
			return runRun(cmd.Context(), o, image, command, cmd.OutOrStdout())
		},
	}
	cmd.Flags().Func("show", "`WHAT` to show: "+strings.Join(shown, ", "), func(v string) error {
		if o.show = v; !slices.Contains(shown, v) {
			return fmt.Errorf("%q is none of %s", v, strings.Join(shown, ", "))
		}
		return nil
	})
	cmd.Flags().Func("break", "open a shell behind `PHASE`: "+strings.Join(api.DebugPhases, ", "), o.breakFlag)
	o.addRun(cmd)
	return cmd
}

// showBefore shows what is known before the command runs.
func (r *runner) showBefore(ctx context.Context, sb *api.Sandbox) error {
	if r.flags.debug && sb.Debug == nil {
		return api.Errorf(api.Unavailable, "the daemon did not say what it launched").WithOp("debug run")
	}
	switch r.flags.show {
	case showConfig:
		var text bytes.Buffer
		if err := json.Indent(&text, sb.Debug.Config, "", "  "); err != nil {
			return fmt.Errorf("debug run: the configuration: %w", err)
		}
		_, err := fmt.Fprintln(r.out, text.String())
		return err
	case showSeccomp:
		return showProfile(r.out, sb)
	case showPolicy:
		return printJSON(r.out, sb.Network)
	case showMounts:
		text, err := r.mounts(ctx, sb)
		if err == nil {
			_, err = fmt.Fprint(r.out, text)
		}
		return err
	}
	return nil
}

// mounts are a sandbox's, as it sees them itself.
func (r *runner) mounts(ctx context.Context, sb *api.Sandbox) (string, error) {
	chunk, err := r.client.ReadFile(ctx,
		api.FileReadParams{FileParams: api.FileParams{Sandbox: sb.ID, Path: "/proc/self/mountinfo"}}, nil)
	return cli.Printable(chunk.Data), err
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

// showProfile prints the rules that commands are under.
func showProfile(out io.Writer, sb *api.Sandbox) error {
	if sb.Seccomp == api.SeccompCustom {
		_, err := fmt.Fprintln(out,
			"The caller's own profile, on top of the filter of PID 1, which is this one and clone3 (--seccomp default shows it).")
		return err
	}
	t := cli.Table{Header: []string{"ACTION", "WHEN", "SYSTEM CALLS", "REASON"}}
	for _, r := range sb.Debug.Seccomp {
		t.Row(r.Action, r.When, strings.Join(r.Syscalls, " "), r.Reason)
	}
	t.Row(sb.Debug.SeccompOther, "", "all others", "unknown, or of no use in a sandbox: programs take their fallback")
	t.Print(out, "", nil)
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
