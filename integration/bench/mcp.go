package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/hutch-sh/hutch/runtime/api"
)

// mcpSubjects are what `hutch mcp` costs beside tools.call, over a warm connection: the median of calls in a row.
func mcpSubjects() []Subject {
	call := func(meta string) string {
		return fmt.Sprintf(`"tools/call","params":{"name":%q,"arguments":{"argv":["/bin/true"]}%s}`,
			api.ToolNameRunCommand, meta)
	}
	return []Subject{
		{Name: "mcp-command", About: "tool-command by hutch mcp", Setup: mcpCalls(call(""))},
		{Name: "mcp-command-progress", About: "the same for a client that watches",
			Setup: mcpCalls(call(`,"_meta":{"progressToken":"p"}`))},
		{Name: "mcp-list", About: "tools/list of hutch mcp", Setup: mcpCalls(`"tools/list","params":{}`)},
	}
}

// mcpCalls measures a request of a client that is no more than a pipe.
func mcpCalls(request string) func(context.Context, *Host) (*Prepared, error) {
	return func(ctx context.Context, h *Host) (*Prepared, error) {
		if err := h.needOwnDaemon(); err != nil {
			return nil, err
		}
		d, err := h.sharedDaemon(ctx)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(d.hutch, "mcp", "host")
		cmd.Env = append(os.Environ(), d.env...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		h.undo.Add(func() error { return errors.Join(in.Close(), cmd.Wait()) })
		lines := bufio.NewReaderSize(out, 1<<20)
		ask := func(context.Context) error {
			if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":`+request+"}\n"); err != nil {
				return err
			}
			for {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					return err
				}
				var answer struct {
					ID     *int
					Error  json.RawMessage
					Result struct{ IsError bool }
				}
				if err := json.Unmarshal(line, &answer); err != nil {
					return err
				}
				if answer.ID == nil {
					continue // progress
				}
				if answer.Error != nil || answer.Result.IsError {
					return fmt.Errorf("%.500s", line)
				}
				return nil
			}
		}
		hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
			`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
		_, err = io.WriteString(in, hello)
		_, rerr := lines.ReadBytes('\n')
		if err := cmp.Or(err, rerr); err != nil {
			return nil, err
		}
		if err := ask(ctx); err != nil { // makes the sandbox
			return nil, err
		}
		return timedCalls("MCP over stdio", ask), nil
	}
}
