package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	rpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// tools are the daemon's. Where the flags say nothing of the network, the spec gets the daemon's default, to be told.
func (b *boxes) tools(ctx context.Context) ([]api.Tool, error) {
	c, err := b.connection(ctx)
	if err != nil {
		return nil, err
	}
	if b.cfg.Spec.Network.IsZero() {
		info, err := c.Info(ctx)
		if err != nil {
			return nil, err
		}
		b.cfg.Spec.Network = info.Network
	}
	if err := b.check(ctx, c); err != nil {
		return nil, err
	}
	return c.Tools(ctx)
}

// newServer makes a server of the daemon's tools and its own, for any number of sessions: making one takes half a
// millisecond and 1.5 MB. Each message of a session is asked about with of first, also its first one, and handled with
// what that returns.
func newServer(cfg *mcpapi.Config, tools []api.Tool, of func(mcp.Session) (*boxes, error)) (*mcp.Server, error) {
	o := &mcp.ServerOptions{
		Instructions: instructions(cfg), Capabilities: &mcp.ServerCapabilities{},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if mayAsk(cfg) {
		o.SupportedProtocolVersions = askVersions
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "hutch", Title: "hutch sandbox", Version: version.Version}, o)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			b, err := of(req.GetSession())
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithCancelCause(context.WithValue(ctx, boxesKey{}, b))
			defer cancel(nil)
			defer context.AfterFunc(b.session, func() { cancel(context.Cause(b.session)) })()
			if session, ok := req.GetSession().(*mcp.ServerSession); ok && method == "tools/call" {
				defer b.asks.call(ctx, session)()
			}
			if res, err := refused(req.GetParams()); res != nil || err != nil {
				return res, err
			}
			res, err := next(ctx, method, req)
			if called, ok := res.(*mcp.CallToolResult); ok && called != nil && !cfg.Structured {
				called.StructuredContent = nil
			}
			return res, err
		}
	})
	for _, t := range tools {
		if err := addTool(s, cfg, t); err != nil {
			return nil, err
		}
	}
	if err := addOwn(s, cfg); err != nil {
		return nil, err
	}
	addResources(s)
	return s, nil
}

// Bounds of a call, in bytes. The daemon takes a little more than maxArguments in one request.
const (
	maxName      = 128
	maxArguments = jsonrpc.MaxLine - 64<<10
)

// refused answers calls that are too large; to others it returns nothing.
func refused(params mcp.Params) (mcp.Result, error) {
	p, ok := params.(*mcp.CallToolParamsRaw)
	switch {
	case !ok || p == nil:
		return nil, nil
	case len(p.Name) > maxName: // the SDK would repeat it
		return nil, &rpc.Error{Code: rpc.CodeInvalidParams,
			Message: fmt.Sprintf("unknown tool: its name has %d bytes, at most %d are possible", len(p.Name), maxName)}
	case len(p.Arguments) > maxArguments:
		return failed(api.Errorf(api.InvalidArgument, "the arguments have %d bytes, at most %d are possible",
			len(p.Arguments), maxArguments).WithHint("write a large file in pieces, with append")), nil
	}
	return nil, nil
}

// boxesKey is where a handler's context has its session's boxes.
type boxesKey struct{}

// boxesOf are those of the session whose message is handled.
func boxesOf(ctx context.Context) *boxes { return ctx.Value(boxesKey{}).(*boxes) }

// instructions tell a model where it works.
func instructions(cfg *mcpapi.Config) string {
	var text strings.Builder
	const rules = "When something is refused, the result says by which rule and how the user can allow it; /run/hutch/policy.json has all rules, /run/hutch/policy.txt a summary."
	if cfg.Sandbox != "" {
		return "The sandbox_* tools work in a sandbox on the user's machine that the user has prepared. Processes and files in it cannot harm the host. " + rules
	}
	sp := &cfg.Spec
	text.WriteString("The sandbox_* tools work in a sandbox on the user's machine, which is made when it is first needed. Processes and files in it cannot harm the host. ")
	switch w := sp.Workspace; {
	case w == nil || w.Mode == api.ModeNone:
		text.WriteString("It holds none of the user's files. ")
	case w.Mode == api.ModeRW:
		text.WriteString("The user's folder is at /workspace, the working directory; what you change there is changed for the user, but for git hooks and the like. ")
	case w.Mode == api.ModeRO:
		text.WriteString("The user's folder is at /workspace, the working directory, and can only be read; write elsewhere, such as to /tmp. ")
	default:
		text.WriteString("The user's folder is at /workspace, the working directory; what you change there stays in the sandbox until the user has looked at it and applied it. ")
	}
	switch cfg.Mode {
	case api.ExecModeOff:
		text.WriteString("But sandbox_run_command and sandbox_run_code run commands and code on the user's machine itself, in the user's folder, with all that the user may do (mode off); with mode all they run in the sandbox. ")
	case api.ExecModeSelective:
		text.WriteString("But sandbox_run_command, and sandbox_run_code of what needs no variables of earlier calls (fresh), run what a scan finds harmless on the user's machine itself, in the user's folder (mode selective); with mode all they run in the sandbox. ")
	}
	switch n := sp.Network.Settled(); n.Mode {
	case api.NetOpen:
		text.WriteString("It reaches the internet, but not the user's own network. ")
	case api.NetAllow:
		if len(n.Allow) > 0 {
			fmt.Fprintf(&text, "It reaches these names only: %s. ", strings.Join(n.Allow, ", "))
		}
		if n.Ask {
			text.WriteString("When it connects to another name the user is asked, which takes a while. ")
		}
	default:
		text.WriteString("It has no network. ")
	}
	if sp.Undo {
		text.WriteString("The user can take back what a call has done to files; results name the call. ")
	}
	text.WriteString(rules)
	return text.String()
}

// atHand are the tools that clients which search for tools, and do not show all of them, are asked to show.
var atHand = []string{api.ToolNameRunCommand, api.ToolNameReadFile, api.ToolNameWriteFile, api.ToolNameFindReplace}

// addTool offers one of the daemon's tools, with an argument more: which sandbox. It has no output schema where results
// are text alone: a tool that has one must keep to it.
func addTool(s *mcp.Server, cfg *mcpapi.Config, t api.Tool) error {
	var schema map[string]any
	if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
		return fmt.Errorf("input schema of %s: %w", t.Name, err)
	}
	props, _ := schema["properties"].(map[string]any)
	if props == nil {
		props = map[string]any{}
		schema["properties"] = props
	}
	props["sandbox"] = map[string]any{"type": "string",
		"description": "Id of a sandbox of sandbox_create; by default this session's own."}
	if t.Name == api.ToolNameRunCommand {
		addMode(cfg.Mode, "command", &t.Description, props)
	}
	tool := &mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{Title: t.Title, ReadOnlyHint: t.ReadOnly, DestructiveHint: &t.Destructive,
			IdempotentHint: t.Idempotent, OpenWorldHint: &t.OpenWorld},
	}
	if cfg.Structured {
		tool.OutputSchema = t.OutputSchema
	}
	if slices.Contains(atHand, t.Name) {
		tool.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
	}
	s.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ref, arguments, err := takeSandbox(req.Params.Arguments)
		if err != nil {
			return failed(err), nil
		}
		return boxesOf(ctx).call(ctx, req, t.Name, ref, arguments)
	})
	return nil
}

// takeSandbox takes the argument that is this server's out of a tool's.
func takeSandbox(raw json.RawMessage) (ref string, rest json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if len(raw) == 0 {
		return "", nil, nil
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return "", nil, api.Errorf(api.InvalidArgument, "the arguments are no object: %w", err).
			WithHint("pass them by name")
	}
	if own, ok := members["sandbox"]; ok {
		if err := json.Unmarshal(own, &ref); err != nil {
			return "", nil, api.Errorf(api.InvalidArgument, "sandbox: %w", err).WithField("sandbox").
				WithHint("pass an id as text, or leave it out")
		}
		delete(members, "sandbox")
	}
	rest, err = json.Marshal(members)
	return ref, rest, err
}

// call calls a tool of the daemon's. All that can be told to a model is a result.
func (b *boxes) call(ctx context.Context, req *mcp.CallToolRequest, name, ref string,
	arguments json.RawMessage) (*mcp.CallToolResult, error) {
	if !b.mine(ref) {
		return failed(api.Errorf(api.NotFound, "sandbox %.64q is none of this session's", ref).
			WithHint("sandbox_list lists them; sandbox_create makes one")), nil
	}
	note := ""
	if name == api.ToolNameRunCommand && b.cfg.Mode != api.ExecModeAll {
		result, rest, why, err := b.command(ctx, ref, arguments)
		if err != nil {
			return b.problem(ctx, "", err)
		}
		if result != nil {
			return result, nil
		}
		arguments, note = rest, why
	}
	c, id, err := b.get(ctx, ref)
	if err != nil {
		return b.problem(ctx, id, err)
	}
	told := newProgress(ctx, req, c)
	r, err := c.CallTool(ctx, api.ToolCallParams{Sandbox: id, Name: name, Arguments: arguments}, told.started())
	told.end()
	if err != nil {
		return b.problem(ctx, id, err)
	}
	if r.Error != nil && r.Error.Code == api.FailedPrecondition && b.isOver(ctx, c, id) {
		return b.over(ctx, id)
	}
	out := resultOf(&r, id)
	if note != "" {
		out.Content = append(out.Content, &mcp.TextContent{Text: note})
	}
	return out, nil
}

// isOver says that a sandbox has ended.
func (b *boxes) isOver(ctx context.Context, c *client.Client, id string) bool {
	if b.cfg.Spec.Undo {
		_, _ = c.Checkpoints(ctx, id) // waits while a call is being undone, for which the sandbox is stopped
	}
	sb, err := c.GetSandbox(ctx, id)
	return err == nil && isEnd(sb.State)
}

// over removes a sandbox of the session's that has ended, so that the next call gets a new one.
func (b *boxes) over(ctx context.Context, id string) (*mcp.CallToolResult, error) {
	if err := b.remove(ctx, id); err != nil {
		return failed(err), nil
	}
	return failed(api.Errorf(api.FailedPrecondition, "the sandbox %s has ended: its processes are gone, and its files",
		id).
		WithHint("call again: without an argument sandbox a new one is made")), nil
}

// problem tells why a call failed.
func (b *boxes) problem(ctx context.Context, id string, err error) (*mcp.CallToolResult, error) {
	switch {
	case ctx.Err() != nil: // cancelled: nobody reads it
		return nil, context.Cause(ctx)
	case errors.Is(err, client.ErrLost):
		return failed(api.Errorf(api.Unavailable,
			"the connection to hutch's daemon was lost; what was under way may be half done").
			WithHint("call again: a new daemon takes over the sandbox, or a new sandbox is made")), nil
	case api.ErrorCode(err) == api.NotFound && id != "":
		b.forget(id)
		return failed(api.Errorf(api.NotFound, "the sandbox %s is gone, with its files: %w", id, err).
			WithHint("call again: without an argument sandbox a new one is made")), nil
	}
	return failed(err), nil
}

// failed is a result that says what went wrong and what to do.
func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text(err)}}, IsError: true}
}

// text is what an error says, and what to do.
func text(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Hint != "" {
		return err.Error() + "\nhint: " + e.Hint
	}
	return err.Error()
}

// metaCall is where a result has the id of its call, for checkpoint.restore.
const metaCall = "hutch.sh/call"

// resultOf is a tool's result in MCP's terms.
func resultOf(r *api.ToolResult, id string) *mcp.CallToolResult {
	out := &mcp.CallToolResult{IsError: r.IsError, Content: []mcp.Content{}}
	if r.Call != "" {
		out.Meta = mcp.Meta{metaCall: r.Call}
	}
	if len(r.Structured) > 0 {
		out.StructuredContent = r.Structured
	}
	for _, c := range r.Content {
		switch c.Type {
		case "text":
			out.Content = append(out.Content, &mcp.TextContent{Text: c.Text})
		case "image":
			if data, err := base64.StdEncoding.DecodeString(c.Data); err == nil {
				out.Content = append(out.Content, &mcp.ImageContent{Data: data, MIMEType: c.MIMEType})
			}
		case "link":
			link := &mcp.ResourceLink{URI: c.URI, Name: c.Name, MIMEType: c.MIMEType}
			if c.Size > 0 {
				link.Size = &c.Size
			}
			out.Content = append(out.Content, link)
		}
	}
	var cut struct {
		Exec      string
		Truncated bool
	}
	if json.Unmarshal(r.Structured, &cut) == nil && cut.Truncated && cut.Exec != "" {
		for _, stream := range []api.Stream{api.Stdout, api.Stderr} {
			out.Content = append(out.Content, &mcp.ResourceLink{URI: execURI(id, cut.Exec, stream),
				Name: string(stream) + " of " + cut.Exec, MIMEType: "text/plain"})
		}
	}
	return out
}
