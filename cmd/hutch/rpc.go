package main

import (
	"bytes"
	"encoding/json"
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
	private := false
	cmd := &cobra.Command{
		Use: "rpc METHOD [JSON]",
		Long: `Call any method of the daemon and print its result. JSON are the params, an
object; "-" reads them from standard input. Progress goes to standard error.`,
		Example: `  hutch rpc rpc.discover
  hutch rpc system.info
  hutch rpc sandbox.create '{"image":"host"}'
  hutch rpc exec.run - <request.json`,
		Args: wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			params := json.RawMessage("{}")
			if len(args) > 1 {
				if params, err = rpcParams(args[1], cmd.InOrStdin()); err != nil {
					return cli.Usage(cmd.CommandPath(), err)
				}
			}
			c, err := connect(cmd.Context(), private)
			if err != nil {
				return err
			}
			defer c.Close()
			var result json.RawMessage
			err = c.Call(cmd.Context(), args[0], params, &result, client.WithProgress(func(p api.Progress) {
				_ = json.NewEncoder(os.Stderr).Encode(p)
			}))
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), result)
		},
	}
	cmd.Flags().BoolVar(&private, "private", false, "use a daemon that lives and dies with this command")
	return cmd
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
