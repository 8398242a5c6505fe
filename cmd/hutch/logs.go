package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

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
			if o.follow {
				return o.runFollow(cmd.Context(), args[0], cmd.OutOrStdout())
			}
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
	if err := o.print(ctx, c, exec, api.Stdout, out); err != nil {
		return err
	}
	return o.print(ctx, c, exec, api.Stderr, os.Stderr)
}

// runFollow copies both streams as they come, until the command has ended.
func (o *logsFlags) runFollow(ctx context.Context, name string, out io.Writer) error {
	from := api.Offsets{Stdout: -o.tail, Stderr: -o.tail}
	return followDaemon(ctx, func(c *client.Client) error {
		exec, err := latestExec(ctx, c, name)
		if err != nil {
			return err
		}
		name = exec
		a, err := c.Attach(ctx, exec, client.AttachOptions{From: from})
		if err != nil {
			return err
		}
		defer func() {
			from = a.Offsets()
			_ = a.Close()
		}()
		return follow(ctx, a, out)
	})
}

func follow(ctx context.Context, a *client.Attachment, out io.Writer) error {
	for piece, err := range a.All(ctx) {
		if err != nil {
			return err
		}
		if gap := piece.Gap(); gap != nil {
			fmt.Fprintln(os.Stderr, "hutch:", gap)
		}
		w := out
		if piece.Stream == api.Stderr {
			w = os.Stderr
		}
		if _, err := w.Write(piece.Data); err != nil {
			return err
		}
	}
	return nil
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

// print copies what there is of one stream, from its start or its tail, to w.
func (o *logsFlags) print(ctx context.Context, c *client.Client, exec string, stream api.Stream, w io.Writer) error {
	p := api.ReadParams{Exec: exec, Stream: stream, Offset: -o.tail, Encoding: api.Base64}
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
		if chunk.EOF || len(data) == 0 {
			return nil
		}
		p.Offset = chunk.Next
	}
}
