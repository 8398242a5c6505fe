package main

import (
	"context"
	"encoding/base64"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// followS is how long one read waits for new output, in seconds; then it is
// asked again.
const followS = 30

type logsFlags struct {
	follow bool
	tail   int64
}

func newLogs() *cobra.Command {
	o := &logsFlags{}
	cmd := &cobra.Command{
		Use:     "logs [-f] SANDBOX|EXEC",
		Short:   "Print what a background command has written",
		Long:    "Print what a background command has written: the last one of a sandbox, or the one named.",
		GroupID: groupSandbox,
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				return o.run(cmd.Context(), c, args[0], cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().Int64Var(&o.tail, "tail", 0, "only the last `BYTES` of each stream")
	return cmd
}

func (o *logsFlags) run(ctx context.Context, c *client.Client, name string, out io.Writer) error {
	exec, err := latestExec(ctx, c, name)
	if err != nil {
		return err
	}
	errs := make(chan error, 2)
	go func() { errs <- o.print(ctx, c, exec, api.Stdout, out) }()
	go func() { errs <- o.print(ctx, c, exec, api.Stderr, os.Stderr) }()
	err = <-errs
	if second := <-errs; err == nil {
		err = second
	}
	return err
}

// latestExec is the exec that name means.
func latestExec(ctx context.Context, c *client.Client, name string) (string, error) {
	if strings.HasPrefix(name, "ex_") {
		return name, nil
	}
	list, err := c.ListExecs(ctx, name)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", api.Errorf(api.NotFound, "sandbox %s has run no background command", name).WithOp("logs").
			WithHint("hutch run -d and hutch exec -d start one")
	}
	return list[len(list)-1].Exec, nil
}

// print copies one stream, from its start or its tail, to w.
func (o *logsFlags) print(ctx context.Context, c *client.Client, exec string, stream api.Stream, w io.Writer) error {
	p := api.ReadParams{Exec: exec, Stream: stream, Offset: -o.tail, Encoding: api.Base64}
	if o.follow {
		p.WaitS = followS
	}
	for {
		chunk, err := c.ExecRead(ctx, p)
		if err != nil {
			return err
		}
		data, err := base64.StdEncoding.DecodeString(chunk.Data)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if chunk.EOF || (!o.follow && len(data) == 0) {
			return nil
		}
		p.Offset = chunk.Next
	}
}
