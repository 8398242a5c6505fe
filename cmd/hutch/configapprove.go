package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newConfigApprove() *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "approve",
		Short: "Put in force what the file allows more than there is without it",
		Long: `Put in force what the configuration file allows more than there is without it: commands on the host, networks of
sandboxes that ask for nothing, pools, templates, tokens, a smaller audit. The file may lie where a sandbox can
write after all, so each of these, as it stands, waits for a yes; until then what is stricter holds. What was approved
is kept in the state folder, which no sandbox is given.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, err := paths.Resolve(os.Getenv, os.Getuid())
			if err != nil {
				return err
			}
			return approve(cmd.Context(), places, cmd.OutOrStdout(), yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "approve all without a question: for scripts of yours")
	return cmd
}

func approve(ctx context.Context, places paths.Paths, out io.Writer, yes bool) error {
	c, err := config.Load(places.Config, parseYAML)
	if err != nil {
		return err
	}
	waiting, err := c.Unapproved(places.Approved())
	if err != nil && !yes {
		fmt.Fprintln(os.Stderr, "hutch:", cli.Line(err.Error()))
	}
	if len(waiting) == 0 && err == nil {
		_, err := fmt.Fprintf(out, "%s: nothing waits for approval\n", places.Config)
		return err
	}
	for _, l := range waiting {
		fmt.Fprintf(out, "%s: %s\n", l.Key, l.What)
		if l.Value != "" {
			fmt.Fprintf(out, "    %s\n", cli.Line(l.Value))
		}
	}
	if !yes {
		if !cli.IsTerminal(os.Stdin) {
			return api.Errorf(api.FailedPrecondition, "whether to approve this is asked at a terminal").
				WithOp("config approve").
				WithHint("run it in a terminal, or with --yes when a script of yours has written the file")
		}
		fmt.Fprint(out, "Approve? [y/N] ")
		answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); err != nil || a != "y" && a != "yes" {
			fmt.Fprintln(out, "Nothing is approved.")
			return &cli.Exit{Code: 1}
		}
	}
	if err := places.MakeDirs(); err != nil {
		return err
	}
	// What was shown is what is approved: the file is not read again.
	if err := c.Approve(places.Approved()); err != nil {
		return err
	}
	fmt.Fprintln(out, "Approved.")
	d, err := client.Dial(ctx, places.Socket)
	if err != nil {
		return nil // the next daemon reads it
	}
	defer d.Close()
	return d.Reload(ctx)
}

var heldOnce sync.Once

// tellHeld says, once, what of the configuration is not in force.
func tellHeld(held []string) {
	if note := config.HeldNote(held); note != "" {
		heldOnce.Do(func() { fmt.Fprintf(os.Stderr, "hutch: %s: hutch config approve\n", cli.Line(note)) })
	}
}
