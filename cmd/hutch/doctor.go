package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/probe"
)

func newDoctor() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Show what this machine offers and how to get what is missing",
		GroupID: groupSystem,
		Long: `Try what sandboxes need and show for each: yes, no, or inconclusive where it could
not be tried; with the command that turns a no into a yes. It needs no daemon.

The exit code is 1 when sandboxes can not run at all, else 0.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := paths.Resolve(os.Getenv, os.Getuid())
			if err != nil {
				return err
			}
			return runDoctor(cmd.Context(), places.State, asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the checks as JSON")
	return cmd
}

func runDoctor(ctx context.Context, state string, asJSON bool, w io.Writer) error {
	checks := probe.All(ctx, probe.Options{StateFolder: state})
	if asJSON {
		if err := printJSON(w, map[string][]probe.Check{"checks": checks}); err != nil {
			return err
		}
	} else {
		printChecks(w, cli.StyleFor(os.Stdout), checks)
	}
	if !probe.CanRun(checks) {
		return &cli.Exit{Code: 1}
	}
	return nil
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
	fmt.Fprintln(w, "\n"+style.Red("Sandboxes can not run here."))
}
