package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newWait() *cobra.Command {
	return &cobra.Command{
		Use:  "wait SANDBOX|EXEC...",
		Long: "Wait until background commands have ended, and print their exit codes: the last one of a sandbox, or the one named.",
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				exec := name
				err := followDaemon(cmd.Context(), func(c *client.Client) error {
					var err error
					if exec, err = latestExec(cmd.Context(), c, exec); err != nil {
						return err
					}
					res, err := c.ExecWait(cmd.Context(), api.WaitParams{Exec: exec})
					if err != nil {
						return err
					}
					_, err = fmt.Fprintln(cmd.OutOrStdout(), res.ExitCode)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
