package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newPush() *cobra.Command {
	quiet := false
	cmd := &cobra.Command{
		Use: "push [flags] IMAGE [REGISTRY/REPOSITORY:TAG]",
		Long: `Send an image to the registry that its name says, or another one. Layers that are there
already are not sent. Names and passwords are those of hutch login; plain
HTTP is for this machine, and for what registries.conf says.

Layers are packed anew: see hutch image save --help.`,
		Example: `  hutch push tools:1 registry.example.com/team/tools:1`,
		Args:    wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.PushParams{Ref: args[0]}
			if len(args) == 2 {
				p.Target = args[1]
			}
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				r, err := push(ctx, c, p, quiet)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), r.Digest)
				return err
			}))
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return cmd
}

// push sends an image. Its progress is off the screen when it returns.
func push(ctx context.Context, c *client.Client, p api.PushParams, quiet bool) (api.Pushed, error) {
	if quiet {
		return c.PushImage(ctx, p, nil)
	}
	progress := cli.NewPullProgress(os.Stderr, cli.IsTerminal(os.Stderr))
	defer progress.Close()
	return c.PushImage(ctx, p, progress.Update)
}
