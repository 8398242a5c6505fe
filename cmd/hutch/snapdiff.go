package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newSnapshotDiff() *cobra.Command {
	var asJSON bool
	lines := -1
	cmd := &cobra.Command{
		Use:   "diff [flags] SNAPSHOT [SNAPSHOT]",
		Short: "Print what is other in a sandbox now, or in another snapshot of it, than in a snapshot",
		Long: `Print which files are others than in the first snapshot: in its sandbox as it is now, which stands still meanwhile, or in the
second snapshot, of the same sandbox. A is added, M modified, D deleted, T another type, and P other permissions or owner.`,
		Example: `  hutch snapshot diff before
  hutch snapshot diff --unified before after`,
		Args: wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.SnapshotDiffParams{Snapshot: args[0], Limit: api.MaxSnapshotChanges}
			if len(args) == 2 {
				p.To = args[1]
			}
			if lines >= 0 {
				p.Unified, p.Context = true, &lines
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				return diffSnapshot(cmd.Context(), c, p, cmd.OutOrStdout(), cmd.ErrOrStderr(), asJSON)
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "unified", "U", -1,
		"print the changes as git does, with `N` lines around each (default 3)")
	cmd.Flags().Lookup("unified").NoOptDefVal = "3"
	cmd.Flags().Lookup("unified").DefValue = "0" // so that -1 is not printed
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, one object for each 20000 changes")
	return cmd
}

// diffSnapshot prints a diff page by page.
func diffSnapshot(ctx context.Context, c *client.Client, p api.SnapshotDiffParams, out, stderr io.Writer,
	asJSON bool) error {
	for {
		d, err := c.DiffSnapshot(ctx, p)
		if err != nil {
			return err
		}
		switch {
		case asJSON:
			err = printJSON(out, d)
		case p.Unified:
			err = showDiff(out, d.Diff)
		default:
			for _, x := range d.Changes {
				printDifference(out, &x)
			}
		}
		if err != nil {
			return err
		}
		if d.Truncated && !asJSON {
			fmt.Fprintln(stderr, "hutch: the diff is longer; without --unified all names are listed")
		}
		if p.Offset = d.NextOffset; p.Offset == 0 {
			for _, target := range d.NotCovered {
				if !asJSON {
					fmt.Fprintf(stderr, "hutch: not looked at: %s\n", plain(target))
				}
			}
			return nil
		}
	}
}

// printDifference prints one line about a name.
func printDifference(out io.Writer, x *api.SnapshotChange) {
	letter := map[string]string{"added": "A", "modified": "M", "deleted": "D", "type": "T", "mode": "P"}[x.Kind]
	name := plain(x.Path)
	if x.Type == "d" {
		name += "/"
	}
	fmt.Fprintf(out, "%s %s\n", letter, name)
}
