package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newDoctor() *cobra.Command {
	var asJSON, fix, yes bool
	cmd := &cobra.Command{
		Use: "doctor",
		Long: `Try what sandboxes need and show for each: yes, no, or inconclusive where it could
not be tried; with the command that turns a no into a yes. It needs no daemon.

With --fix it offers to run those that are commands: each is shown as it will be run,
with sudo where it needs root, and nothing is run without a yes.

The exit code is 1 when sandboxes cannot run at all, else 0.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := paths.Resolve(os.Getenv, os.Getuid())
			if err != nil {
				return err
			}
			switch {
			case yes && !fix:
				return cli.Usage(cmd.CommandPath(), errors.New("--yes answers --fix, which is not there"))
			case fix && asJSON:
				return cli.Usage(cmd.CommandPath(), errors.New("--fix shows commands to a person: leave out --json"))
			case fix:
				return runFix(cmd.Context(), places.State, yes)
			}
			return runDoctor(cmd.Context(), places, asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the checks as JSON")
	cmd.Flags().BoolVar(&fix, "fix", false, "offer to run the commands that fix what is missing")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --fix, agree to all of them")
	return cmd
}

func runDoctor(ctx context.Context, places paths.Paths, asJSON bool, w io.Writer) error {
	checks := append(probe.All(ctx, probe.Options{StateFolder: places.State}), daemonWalls(ctx, places.Socket))
	if asJSON {
		if err := printJSON(w, map[string][]probe.Check{"checks": checks}); err != nil {
			return err
		}
	} else {
		printChecks(w, cli.StyleFor(os.Stdout), checks)
		if c, err := config.LoadApproved(places.Config, places.Approved(), parseYAML); err != nil {
			fmt.Fprintf(w, "\n%s\n", cli.Line(err.Error()))
		} else if note := config.HeldNote(c.Held); note != "" {
			fmt.Fprintf(w, "\n%s:\n    hutch config approve\n", cli.Line(note))
		}
	}
	if !probe.CanRun(checks) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// daemonWalls is what a running daemon finds of itself: only its monitor knows the pids.
func daemonWalls(ctx context.Context, socket string) probe.Check {
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return probe.Daemon(0, 0)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := c.Doctor(ctx)
	for _, c := range found.Checks {
		if none := probe.Daemon(0, 0); c.Name == none.Name {
			return probe.Check{Name: c.Name, Status: probe.Status(c.Status), Detail: c.Detail, Remedy: c.Remedy}
		}
	}
	check := probe.Daemon(0, 0)
	if check.Detail = "the daemon that runs does not say"; err != nil {
		check.Detail += ": " + err.Error()
	}
	return check
}

func printChecks(w io.Writer, style cli.Style, checks []probe.Check) {
	t := cli.Table{}
	for _, c := range checks {
		t.Row(strings.ReplaceAll(c.Name, "_", " "), string(c.Status), c.Detail)
	}
	t.Print(w, "", func(row, col int, cell string) string {
		if col != 1 {
			return cell
		}
		switch c := checks[row]; {
		case c.Status == probe.Yes:
			return style.Green(cell)
		case c.Status == probe.No && c.Required:
			return style.Red(cell)
		}
		return style.Yellow(cell)
	})
	for _, c := range checks {
		if c.Remedy != "" {
			fmt.Fprintf(w, "\n%s\n    %s\n", style.Bold("for "+strings.ReplaceAll(c.Name, "_", " ")+":"),
				strings.ReplaceAll(strings.TrimSpace(c.Remedy), "\n", "\n    "))
		}
	}
	if probe.CanRun(checks) {
		fmt.Fprintln(w, "\nSandboxes can run here.")
		return
	}
	fmt.Fprintln(w, "\n"+style.Red("Sandboxes cannot run here."))
}
