package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// createArguments are sandbox_create's.
type createArguments struct {
	Image string `json:"image,omitempty" doc:"An image such as python@3.12, node@20 or debian:12; by default that of this session."`
}

type noArguments struct{}

// removeArguments are sandbox_remove's.
type removeArguments struct {
	Sandbox string `json:"sandbox" doc:"Id of the sandbox to remove. Its processes and files are gone then."`
}

// codeArguments are sandbox_run_code's.
type codeArguments struct {
	Sandbox  string  `json:"sandbox,omitempty" doc:"Id of a sandbox of sandbox_create; by default this session's own."`
	Language string  `json:"language" enum:"python|javascript|shell|go|ruby" doc:"The language of the code."`
	Code     string  `json:"code" doc:"The code. The value of its last expression is shown, as are matplotlib figures."`
	Context  string  `json:"context,omitempty" doc:"Python and JavaScript keep variables from one call to the next: those of contexts with different names apart."`
	Fresh    bool    `json:"fresh,omitempty" doc:"Run in an interpreter of its own, without variables of earlier calls."`
	TimeoutS float64 `json:"timeout_s,omitempty" doc:"Seconds after which the code is stopped; 30 by default, at most 1800."`
	// Mode is offered only where the user has given the session another mode than all.
	Mode *api.ExecMode `json:"mode,omitempty"`
}

// box is a sandbox of the session, and sandbox_create's result.
type box struct {
	Sandbox string    `json:"sandbox"`
	Image   string    `json:"image,omitempty"`
	Workdir string    `json:"workdir,omitempty"`
	State   api.State `json:"state,omitempty"`
	Error   string    `json:"error,omitempty"` // why it cannot be asked for its state
}

// boxList is sandbox_list's result; the first is the session's own.
type boxList struct {
	Sandboxes []box `json:"sandboxes"`
}

// removed is sandbox_remove's result.
type removed struct {
	Sandbox string `json:"sandbox"`
}

func boxOf(sb *api.Sandbox) box {
	return box{Sandbox: sb.ID, Image: sb.Image, Workdir: sb.Workdir, State: sb.State}
}

// own is a tool of this server's, with arguments A and results R. Where results are text alone it has no output schema:
// a tool that has one must keep to it.
func own[A, R any](s *mcp.Server, cfg *mcpapi.Config, t *mcp.Tool,
	run func(ctx context.Context, b *boxes, req *mcp.CallToolRequest, a A) (*mcp.CallToolResult, error)) error {
	mode := cfg.Mode
	schema, err := params.Inline(reflect.TypeFor[A](), true)
	if err == nil && cfg.Structured {
		t.OutputSchema, err = params.Inline(reflect.TypeFor[R](), false)
	}
	if err != nil {
		return fmt.Errorf("describe %s: %w", t.Name, err)
	}
	if props, _ := schema["properties"].(params.Object); props["mode"] != nil { // only where a mode can be chosen
		delete(props, "mode")
		addMode(mode, "code", &t.Description, props)
	}
	t.InputSchema = schema
	s.AddTool(t, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a A
		if err := params.DecodeWhole(req.Params.Arguments, &a); err != nil {
			return failed(err), nil
		}
		return run(ctx, boxesOf(ctx), req, a)
	})
	return nil
}

// said is a result as text and as an object.
func said(result any, format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}},
		StructuredContent: result}
}

// addOwn offers the tools that are about sandboxes, and code.
func addOwn(s *mcp.Server, cfg *mcpapi.Config) error {
	yes, no := true, false
	err := own[createArguments, box](s, cfg, &mcp.Tool{
		Name: "sandbox_create", Title: "Create sandbox",
		Description: "Creates one more sandbox, apart from this session's own, perhaps of another image. Its id goes into the argument sandbox of the other tools.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &yes},
	}, func(ctx context.Context, b *boxes, _ *mcp.CallToolRequest, a createArguments) (*mcp.CallToolResult, error) {
		sb, err := b.another(ctx, a.Image)
		if err != nil {
			return b.problem(ctx, "", err)
		}
		return said(boxOf(&sb), "%s\n[image %s, working directory %s]", sb.ID, sb.Image, sb.Workdir), nil
	})
	if err != nil {
		return err
	}
	err = own[noArguments, boxList](s, cfg, &mcp.Tool{
		Name: "sandbox_list", Title: "List sandboxes",
		Description: "Lists the sandboxes of this session; the first is its own, which tools use by default.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no},
	}, func(ctx context.Context, b *boxes, _ *mcp.CallToolRequest, _ noArguments) (*mcp.CallToolResult, error) {
		c, err := b.connection(ctx)
		if err != nil {
			return b.problem(ctx, "", err)
		}
		var lines strings.Builder
		list := boxList{Sandboxes: []box{}}
		for _, id := range b.list() {
			sb, err := c.GetSandbox(ctx, id)
			if err != nil {
				fmt.Fprintf(&lines, "%s\t%v\n", id, err)
				list.Sandboxes = append(list.Sandboxes, box{Sandbox: id, Error: err.Error()})
				continue
			}
			fmt.Fprintf(&lines, "%s\t%s\t%s\n", sb.ID, sb.Image, sb.State)
			list.Sandboxes = append(list.Sandboxes, boxOf(&sb))
		}
		if lines.Len() == 0 {
			lines.WriteString("[none yet: the first tool that needs it makes one]")
		}
		return said(list, "%s", lines.String()), nil
	})
	if err != nil {
		return err
	}
	err = own[removeArguments, removed](s, cfg, &mcp.Tool{
		Name: "sandbox_remove", Title: "Remove sandbox",
		Description: "Removes a sandbox of this session with all that is in it. When it is the session's own, the next call begins with a new one.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no},
	}, func(ctx context.Context, b *boxes, _ *mcp.CallToolRequest, a removeArguments) (*mcp.CallToolResult, error) {
		if !b.mine(a.Sandbox) || a.Sandbox == "" {
			return failed(api.Errorf(api.NotFound, "sandbox %.64q is none of this session's", a.Sandbox).
				WithHint("sandbox_list lists them")), nil
		}
		if err := b.remove(ctx, a.Sandbox); err != nil {
			return b.problem(ctx, "", err)
		}
		return said(removed(a), "removed %s", a.Sandbox), nil
	})
	if err != nil {
		return err
	}
	return own[codeArguments, api.CodeResult](s, cfg, &mcp.Tool{
		Name: "sandbox_run_code", Title: "Run code",
		Description: "Runs a piece of code as a notebook does: Python and JavaScript keep their variables for the next call. Values, errors with their traceback, figures and " +
			"files that were made come back. /run/hutch/policy.txt says what the code may reach and write.",
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
	}, func(ctx context.Context, b *boxes, req *mcp.CallToolRequest, a codeArguments) (*mcp.CallToolResult, error) {
		return b.code(ctx, req, &a)
	})
}
