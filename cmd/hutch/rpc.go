package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// maxRequest bounds the params that rpc reads from stdin, in bytes: the longest
// line that the daemon takes.
const maxRequest = 4 << 20

func newRPC() *cobra.Command {
	var o rpcOptions
	cmd := &cobra.Command{
		Use: "rpc METHOD [JSON]",
		Long: `Call any method of the daemon and print its result. JSON are the params, an
object; "-" reads them from standard input. Progress goes to standard error.

Methods with a parameter fd move data through a pipe. With --in standard input feeds
it; with --out it goes to standard output, and the result to standard error.`,
		Example: `  hutch rpc rpc.discover
  hutch rpc system.info
  hutch rpc sandbox.create '{"image":"host"}'
  hutch rpc exec.run - <request.json
  hutch rpc --in fs.write '{"sandbox":"box","path":"/data.csv"}' <data.csv
  hutch rpc --out fs.read '{"sandbox":"box","path":"/out.png"}' >out.png`,
		Args: wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			params := json.RawMessage("{}")
			if len(args) > 1 {
				if o.in && args[1] == "-" {
					err = errors.New("standard input cannot be the params and, with --in, the data as well")
				} else {
					params, err = rpcParams(args[1], cmd.InOrStdin())
				}
			}
			if err == nil && (o.in || o.out) {
				params, err = withPipe(params)
			}
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			err = o.call(cmd, args[0], params)
			if err == nil || !o.errorJSON {
				return err
			}
			var e *api.Error
			if !errors.As(err, &e) {
				e = &api.Error{Code: api.ErrorCode(err), Err: err}
			}
			said := map[string]any{"message": err.Error(), "data": api.ErrorData{Code: e.Code, Op: e.Op, Field: e.Field,
				Hint: e.Hint, Failed: e.Failed, Owner: e.Owner}}
			_ = printJSON(cmd.ErrOrStderr(), said) // the exit code says that it failed, too
			return &cli.Exit{Code: cli.ExitHutch}
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.private, "private", false, "use a daemon that lives and dies with this command")
	f.BoolVar(&o.in, "in", false, "standard input is the data that the method takes")
	f.BoolVar(&o.out, "out", false, "standard output gets the data that the method gives")
	f.BoolVar(&o.errorJSON, "error-json", false, "print an error as an object, as JSON-RPC does")
	cmd.MarkFlagsMutuallyExclusive("in", "out")
	return cmd
}

// rpcOptions are the flags of hutch rpc.
type rpcOptions struct{ private, in, out, errorJSON bool }

// call makes the call, with a pipe if there is to be one.
func (o rpcOptions) call(cmd *cobra.Command, method string, params json.RawMessage) error {
	c, err := connect(cmd.Context(), o.private)
	if err != nil {
		return err
	}
	defer c.Close()
	var result json.RawMessage
	opts := []client.CallOption{client.WithProgress(func(p api.Progress) { _ = json.NewEncoder(os.Stderr).Encode(p) })}
	call := func(ctx context.Context, pipe *os.File) error {
		return c.Call(ctx, method, params, &result, append(opts, client.WithFDs(pipe))...)
	}
	to := cmd.OutOrStdout()
	switch {
	case o.in:
		err = pushThrough(cmd.Context(), func(w io.Writer) error {
			_, err := copyAll(w, cmd.InOrStdin())
			return err
		}, call)
	case o.out:
		to = cmd.ErrOrStderr()
		err = pullThrough(cmd.Context(), call, func(r io.Reader) error {
			_, err := copyAll(cmd.OutOrStdout(), r)
			return err
		})
	default:
		err = c.Call(cmd.Context(), method, params, &result, opts...)
	}
	if err != nil {
		return err
	}
	return printJSON(to, result)
}

// withPipe makes fd, of one fd, the pipe, unless the params say more.
func withPipe(params json.RawMessage) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(params, &all); err != nil {
		return nil, err
	}
	if _, said := all["fds"]; !said {
		all["fds"], all["fd"] = json.RawMessage("1"), json.RawMessage("0")
	}
	return json.Marshal(all)
}

// rpcParams reads the params, which are by name only.
func rpcParams(arg string, stdin io.Reader) (json.RawMessage, error) {
	text := []byte(arg)
	if arg == "-" {
		var err error
		if text, err = io.ReadAll(io.LimitReader(stdin, maxRequest+1)); err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		if len(text) > maxRequest {
			return nil, fmt.Errorf("the params have more than %d bytes", maxRequest)
		}
	}
	if text = bytes.TrimSpace(text); !json.Valid(text) {
		return nil, fmt.Errorf("the params are not valid JSON: %s", cli.Line(abridge(string(text))))
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("the params are not a JSON object: %s", cli.Line(abridge(string(text))))
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// abridge shortens what a message repeats of its input.
func abridge(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
