package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newKill() *cobra.Command {
	signal := "KILL"
	cmd := &cobra.Command{
		Use:  "kill [-s SIGNAL] SANDBOX...",
		Long: "Kill every process of sandboxes; their files stay. With -s their last background command gets a signal.",
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := slices.Contains([]string{"KILL", "SIGKILL", "9"}, strings.ToUpper(signal))
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				var err error
				if all {
					_, err = c.Kill(ctx, name)
				} else {
					err = signalLatest(ctx, c, name, signal)
				}
				if err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", signal, "`SIGNAL`, such as TERM or HUP")
	return cmd
}

// signalLatest sends a signal to the last background command of a sandbox that has not ended.
func signalLatest(ctx context.Context, c *client.Client, name, signal string) error {
	exec, err := latestExec(ctx, c, name, api.ExecRunning)
	if err != nil {
		return err
	}
	return c.Signal(ctx, exec, signal)
}
