package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newRm() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:  "rm [-f] SANDBOX...",
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				if err := remove(ctx, c, name, force); force && notFound(err) {
					fmt.Fprintf(cmd.ErrOrStderr(), "hutch: there is no sandbox %s\n", plain(name))
					return nil
				} else if err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
	ignored(cmd.Flags(), "volumes,v")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also those that are running; one that is not there is no error")
	return cmd
}

func remove(ctx context.Context, c *client.Client, name string, force bool) error {
	if !force {
		sb, err := c.GetSandbox(ctx, name)
		if err != nil {
			return err
		}
		if sb.State != api.Stopped && sb.State != api.Failed {
			return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", name, sb.State).
				WithOp("rm").WithHint("hutch rm -f %s", name)
		}
	}
	_, err := c.Remove(ctx, name)
	if err == nil {
		forgetLent(name)
	}
	return err
}
