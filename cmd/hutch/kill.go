package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/client"
)

func newKill() *cobra.Command {
	return &cobra.Command{
		Use:     "kill SANDBOX...",
		Short:   "Kill every process of sandboxes; their files stay",
		GroupID: groupSandbox,
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				if _, err := c.Kill(ctx, name); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
}
