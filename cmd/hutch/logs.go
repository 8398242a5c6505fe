package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

type logsFlags struct {
	follow bool
	lines  string // "all", or how many
	tail   int64  // bytes; 0 is all
}

func newLogs() *cobra.Command {
	o := &logsFlags{}
	cmd := &cobra.Command{
		Use:  "logs [-f] SANDBOX|EXEC",
		Long: "Print what a background command has written: the last one of a sandbox, or the one named.",
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			if o.follow {
				return o.runFollow(cmd.Context(), args[0], cmd.OutOrStdout())
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				return o.run(cmd.Context(), c, args[0], cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().StringVarP(&o.lines, "tail", "n", "all", "only the last `LINES` of each stream")
	cmd.Flags().Int64Var(&o.tail, "tail-bytes", 0, "only the last `BYTES` of each stream")
	return cmd
}

// check refuses impossible tails.
func (o *logsFlags) check() error {
	if o.tail < 0 {
		return fmt.Errorf("--tail-bytes %d: it is a number of bytes", o.tail)
	}
	if n, err := strconv.Atoi(o.lines); o.lines != "all" && (err != nil || n < 0) {
		return fmt.Errorf("--tail %q: it is a number of lines, or all", o.lines)
	}
	return nil
}

// maxTail is how far back lines are looked for.
const maxTail = 8 << 20

// from is where the tail of a stream begins.
func (o *logsFlags) from(ctx context.Context, c *client.Client, exec string, stream api.Stream) (int64, error) {
	n, err := strconv.Atoi(o.lines)
	if err != nil { // all
		return -o.tail, nil
	}
	var text []byte
	next := int64(0)
	for p := (api.ReadParams{Exec: exec, Stream: stream, Offset: -maxTail, Encoding: api.Base64}); ; p.Offset = next {
		chunk, err := c.ExecRead(ctx, p)
		if err != nil {
			return 0, err
		}
		data, err := base64.StdEncoding.DecodeString(chunk.Data)
		if err != nil {
			return 0, err
		}
		text, next = append(text, data...), chunk.Next
		if chunk.EOF || len(data) == 0 {
			break
		}
	}
	return next - int64(len(lastLines(text, n))), nil
}

// lastLines are the last n lines of a text, whether the last ends or not.
func lastLines(text []byte, n int) []byte {
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for range n {
		if at < 0 {
			return text
		}
		at = bytes.LastIndexByte(text[:at], '\n')
	}
	if n == 0 {
		return nil
	}
	return text[at+1:]
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
	var from api.Offsets
	begun := false
	return followDaemon(ctx, func(c *client.Client) error {
		exec, err := latestExec(ctx, c, name)
		if err != nil {
			return err
		}
		name = exec
		if !begun {
			if from.Stdout, err = o.from(ctx, c, exec, api.Stdout); err == nil {
				from.Stderr, err = o.from(ctx, c, exec, api.Stderr)
			}
			if err != nil {
				return err
			}
			begun = true
		}
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
func latestExec(ctx context.Context, c *client.Client, name string, states ...api.ExecState) (string, error) {
	if strings.HasPrefix(name, "ex_") {
		return name, nil
	}
	list, err := c.ListExecs(ctx, name)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(e api.Exec) bool {
		return e.Kept || len(states) > 0 && !slices.Contains(states, e.State)
	})
	if len(list) == 0 && len(states) > 0 {
		return "", api.Errorf(api.FailedPrecondition, "no background command runs in sandbox %s", name).
			WithHint("hutch ps shows whether it has ended")
	}
	if len(list) == 0 {
		return "", api.Errorf(api.NotFound, "sandbox %s has run no background command since it was made or started",
			name).
			WithHint("hutch run -d and hutch exec -d start one")
	}
	return list[len(list)-1].Exec, nil
}

// print copies what there is of one stream, from its start or its tail, to w.
func (o *logsFlags) print(ctx context.Context, c *client.Client, exec string, stream api.Stream, w io.Writer) error {
	from, err := o.from(ctx, c, exec, stream)
	if err != nil {
		return err
	}
	p := api.ReadParams{Exec: exec, Stream: stream, Offset: from, Encoding: api.Base64}
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
