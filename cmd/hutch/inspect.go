package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/client"
)

func newInspect() *cobra.Command {
	return &cobra.Command{
		Use:     "inspect SANDBOX...",
		Short:   "Print the records of sandboxes as JSON",
		GroupID: groupSandbox,
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				sb, err := c.GetSandbox(ctx, name)
				if err != nil {
					return err
				}
				return printJSON(cmd.OutOrStdout(), sb)
			})
		},
	}
}
