package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

func newServe() *cobra.Command {
	onStop := "kill"
	c := &cobra.Command{
		Use: "serve",
		Long: `Run the daemon in the foreground, for a service manager. Nobody needs to: the
other commands start one in the background when none answers.

SIGTERM and SIGINT end the daemon and its sandboxes. With --on-stop keep the
sandboxes live on, and the next daemon has them: so a service can be restarted or
upgraded under running commands. A daemon that is killed keeps them in any case.`,
		Args: wantArgs(0, 0),
		RunE: func(*cobra.Command, []string) error {
			path, err := paths.Sibling("hutchd")
			if err != nil {
				return err
			}
			err = unix.Exec(path, []string{path, "serve", "--on-stop", onStop}, os.Environ())
			return api.Errorf(api.Internal, "execute %s: %w", path, err).WithOp("serve")
		},
	}
	c.Flags().StringVar(&onStop, "on-stop", onStop, "what a signal does with the sandboxes: kill or keep")
	return c
}
