package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

func newServe() *cobra.Command {
	return &cobra.Command{
		Use:     "serve",
		Short:   "Run the daemon in the foreground",
		GroupID: groupSystem,
		Long: `Run the daemon in the foreground, for a service manager. Nobody needs to: the
other commands start one in the background when none answers.`,
		Args: wantArgs(0, 0),
		RunE: func(*cobra.Command, []string) error {
			path, err := paths.Sibling("hutchd")
			if err != nil {
				return err
			}
			err = unix.Exec(path, []string{path, "serve"}, os.Environ())
			return api.Errorf(api.Internal, "execute %s: %w", path, err).WithOp("serve")
		},
	}
}
