package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newGC() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:  "gc",
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				res, err := c.GC(cmd.Context())
				if err != nil {
					return err
				}
				w := cmd.OutOrStdout()
				if asJSON {
					return printJSON(w, res)
				}
				for _, what := range res.Removed {
					fmt.Fprintln(w, cli.Line(what))
				}
				fmt.Fprintf(w, "removed %d, freed %s\n", len(res.Removed), cli.Bytes(res.Bytes))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}
