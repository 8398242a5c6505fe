package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newPause() *cobra.Command {
	return &cobra.Command{
		Use: "pause SANDBOX...",
		Long: `Stop the processes of sandboxes where they are, and the clocks of their commands' timeouts.
The life of a sandbox, --ttl, runs on. "hutch resume" lets them go on, and so does the next
command, "hutch exec", or use of files, "hutch cp".

Where the kernel can (cgroup v2, Linux 5.19), copies of files that it holds in memory for a paused
sandbox are given back, behind the command's back; "hutch inspect" says how much that was.`,
		Args: wantArgs(1, -1),
		RunE: eachPaused((*client.Client).Pause),
	}
}

func newResume() *cobra.Command {
	return &cobra.Command{
		Use:  "resume SANDBOX...",
		Args: wantArgs(1, -1),
		RunE: eachPaused((*client.Client).Resume),
	}
}

func eachPaused(do func(*client.Client, context.Context, string) (api.Sandbox, error)) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
			if _, err := do(c, ctx, name); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), name)
			return err
		})
	}
}
