package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// connect reaches the user's shared daemon, which it starts when none answers,
// or starts one that lives as long as the connection.
func connect(ctx context.Context, private bool) (*client.Client, error) {
	if private {
		return client.Start(ctx, client.StartOptions{})
	}
	c, err := client.Connect(ctx, client.ConnectOptions{})
	if err != nil {
		return nil, err
	}
	if who, err := c.Peer(ctx); err == nil && who.BuildID != version.BuildID { // it has sandboxes
		otherBuild.Do(func() {
			fmt.Fprintf(os.Stderr,
				"hutch: the daemon is of build %s, this is %s: it stays while it has sandboxes (hutch ps -a); "+
					"hutch rpc system.shutdown '{\"mode\":\"keep\"}' hands them to one of this build\n",
				cli.Line(who.BuildID), version.BuildID)
		})
	}
	return c, nil
}

// otherBuild is for saying so once.
var otherBuild sync.Once

// withDaemon runs fn with a connection to the shared daemon.
func withDaemon(ctx context.Context, fn func(c *client.Client) error) error {
	c, err := connect(ctx, false)
	if err != nil {
		return err
	}
	defer c.Close() // the daemon lives on: there is nothing to fail
	return fn(c)
}

// maxResumes bounds how often one command goes on after its daemon was killed.
const maxResumes = 10

// followDaemon is withDaemon for what goes on where it was when hutchd was killed and
// another one took over: fn is called again with a new connection.
func followDaemon(ctx context.Context, fn func(c *client.Client) error) (err error) {
	for range maxResumes {
		if err = withDaemon(ctx, fn); ctx.Err() != nil || !errors.Is(err, client.ErrLost) {
			break
		}
	}
	return err
}

// eachSandbox runs fn for every sandbox named; one that fails does not keep the
// others from their turn.
func eachSandbox(cmd *cobra.Command, names []string, fn func(ctx context.Context, c *client.Client,
	name string) error) error {
	return withDaemon(cmd.Context(), func(c *client.Client) error {
		var errs cli.Errors
		for _, name := range names {
			if err := fn(cmd.Context(), c, name); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			return errs
		}
		return nil
	})
}

// interrupted replaces err where a signal ended ctx: what failed then failed
// because of it, and the exit code says so as a shell would.
func interrupted(ctx context.Context, err error) error {
	var by *cli.Interrupted
	if err != nil && errors.As(context.Cause(ctx), &by) {
		return &cli.Exit{Code: cli.ExitSignal + int(by.Signal)}
	}
	return err
}

// notFound reports whether err is the daemon's not_found.
func notFound(err error) bool { return errors.Is(err, &api.Error{Code: api.NotFound}) }
