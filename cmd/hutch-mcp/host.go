package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/hostexec"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Commands on the host: `hutch mcp --mode`. The daemon decides and records; this process runs what is for the host, as
// the user that has started it. A model may ask for a stricter mode than the user gave this session, never for a weaker
// one.

// modes are what the argument mode may be.
func modes(given api.ExecMode) (list []any) {
	for _, m := range api.ExecModes {
		if !m.Weaker(given) {
			list = append(list, string(m))
		}
	}
	return list
}

// addMode offers the argument mode of a tool that runs something, where the user has given this session another mode
// than all.
func addMode(cfg api.ExecMode, what string, description *string, props map[string]any) {
	if cfg == api.ExecModeAll {
		return
	}
	props["mode"] = map[string]any{
		"type": "string", "enum": modes(cfg),
		"description": "Where the " + what + " runs; " + string(cfg) +
			" by default. all: in the sandbox. selective: there if a scan finds it risky, else on the user's own machine. off: on the user's own machine.",
	}
	*description += " In this session the " + what +
		" may run on the user's own machine, outside of the sandbox, in the folder that is /workspace in it: the result says so with where."
}

// takeMode takes the argument mode out of a command's.
func (b *boxes) takeMode(raw json.RawMessage) (api.ExecMode, json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return "", nil, api.Errorf(api.InvalidArgument, "the arguments are no object: %w", err).
			WithHint("pass them by name")
	}
	text, ok := members["mode"]
	if !ok {
		return b.cfg.Mode, raw, nil
	}
	var asked *api.ExecMode
	if err := json.Unmarshal(text, &asked); err != nil || asked == nil {
		return "", nil, b.noMode(string(text))
	}
	mode, err := b.strictest(asked)
	if err != nil {
		return "", nil, err
	}
	delete(members, "mode")
	rest, err := json.Marshal(members)
	return mode, rest, err
}

// strictest is the mode that a call asks for, nil for none: it may be as strict as the session's, or stricter.
func (b *boxes) strictest(asked *api.ExecMode) (api.ExecMode, error) {
	switch {
	case asked == nil:
		return b.cfg.Mode, nil
	case !slices.Contains(api.ExecModes, *asked):
		return "", b.noMode(string(*asked))
	case asked.Weaker(b.cfg.Mode):
		return "", api.Errorf(api.PermissionDenied, "mode %s is weaker than %s, which the user has given this session",
			*asked, b.cfg.Mode).
			WithField("mode").WithHint("leave mode out; only the user can start a server with another one")
	}
	return *asked, nil
}

func (b *boxes) noMode(text string) error {
	return api.Errorf(api.InvalidArgument, "mode: %.40q is no mode", text).WithField("mode").
		WithHint("use one of %v, or leave it out", modes(b.cfg.Mode))
}

// command runs a command on the host if it is to run there: result is not nil then. Otherwise it is for the sandbox,
// with the arguments that are left, and note says why.
func (b *boxes) command(ctx context.Context, ref string, raw json.RawMessage) (result *mcp.CallToolResult,
	rest json.RawMessage, note string, err error) {
	mode, rest, err := b.takeMode(raw)
	if err != nil || mode == api.ExecModeAll {
		return nil, rest, "", err
	}
	var a api.ToolRunCommand
	if err := params.DecodeWhole(rest, &a); err != nil {
		return nil, rest, "", err
	}
	switch why := b.needsBox(mode, ref, &a); {
	case ref != "" || a.Exec != "": // a sandbox is named
		return nil, rest, "", nil
	case why != "" && mode == api.ExecModeOff:
		return nil, rest, "", api.Errorf(api.FailedPrecondition, "mode off runs the command on the host, but %s", why).
			WithHint("leave that out, or call with mode all to run it in the sandbox")
	case why != "":
		return nil, rest, fmt.Sprintf("[mode %s: in the sandbox: %s]", mode, why), nil
	}
	c, err := b.connection(ctx)
	if err != nil {
		return nil, rest, "", err
	}
	d, err := c.Decide(ctx, api.DecideParams{
		Mode: mode, Argv: a.Argv, Command: a.Command, TimeoutS: a.TimeoutS, ReadOnly: mode == api.ExecModeSelective &&
			hostexec.Confines(),
	})
	if err != nil {
		return nil, rest, "", err
	}
	if d.Decision != api.WhereHost {
		return nil, rest, fmt.Sprintf("[mode %s: in the sandbox: %s]", mode, d.Reason), nil
	}
	result, err = b.onHost(ctx, &a, &d, c.HostEnded)
	return result, rest, "", err
}

// needsBox says what of a command only a sandbox has, "" if nothing.
func (b *boxes) needsBox(mode api.ExecMode, ref string, a *api.ToolRunCommand) string {
	selective := mode == api.ExecModeSelective
	switch {
	case a.Background:
		return "it is to run in the background"
	case a.Stdin != "":
		return "it has a text on standard input"
	case selective && len(a.Env) > 0:
		return "it has variables of its own, which no scan looks at"
	case selective && a.Cwd != "":
		return "it runs in a folder of its own, which may be a link"
	case selective && a.Command != "" && hostexec.Shell(a.Command) == nil:
		return "the host has no bash, whose grammar the scan knows"
	}
	if _, ok := b.hostFolder(a.Cwd); !ok {
		return "its folder " + a.Cwd + " is not below /workspace"
	}
	return ""
}

// workspace is where sandboxes have the user's folder.
const workspace = "/workspace"

// hostFolder is the folder of the host that a folder in the sandbox is.
func (b *boxes) hostFolder(cwd string) (string, bool) {
	if cwd == "" {
		return b.cfg.Folder, true
	}
	below, ok := strings.CutPrefix(path.Clean(cwd)+"/", workspace+"/")
	return filepath.Join(b.cfg.Folder, below), ok
}

// onHost runs a command on the host.
func (b *boxes) onHost(ctx context.Context, a *api.ToolRunCommand, d *api.Decision,
	record func(context.Context, api.HostEndParams) error) (*mcp.CallToolResult, error) {
	selective := d.Mode == api.ExecModeSelective
	cmd := hostexec.Command{Argv: a.Argv, Env: hostexec.Environ(selective, a.Env), ReadOnly: selective &&
		hostexec.Confines()}
	cmd.Dir, _ = b.hostFolder(a.Cwd)
	if a.Command != "" {
		if cmd.Argv = hostexec.Shell(a.Command); cmd.Argv == nil {
			cmd.Argv = []string{"/bin/sh", "-c", a.Command}
		}
	}
	limit := int(a.OutputBytes)
	if limit == 0 {
		limit = api.ToolOutputBytes
	}
	res, err := captured(ctx, &cmd, d, record, limit)
	if err != nil {
		return nil, err
	}
	r := api.ToolCommand{
		Exec: d.ID, Where: api.WhereHost, ExitCode: res.ExitCode, Signal: res.Signal, Verdict: res.Verdict,
		TimedOut: res.TimedOut, DurationMS: res.DurationMS,
		Denials: []api.Denial{}, Error: res.Error, Stdout: res.Stdout, Stderr: res.Stderr, Truncated: res.Truncated,
	}
	structured, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: hostText(&r, d)}}, StructuredContent: json.RawMessage(structured),
		IsError: r.Verdict != api.VerdictOK,
	}, nil
}

// captured runs what is for the host, with the beginning and the end of its output as text: limit bytes of each stream.
func captured(ctx context.Context, cmd *hostexec.Command, d *api.Decision,
	record func(context.Context, api.HostEndParams) error, limit int) (res api.ExecResult, err error) {
	out, err := hostexec.NewCapture(limit)
	if err != nil {
		return res, err
	}
	errs, err := hostexec.NewCapture(limit)
	if err != nil {
		out.Close()
		return res, err
	}
	cmd.Stdout, cmd.Stderr = out.W, errs.W
	res, err = cmd.Run(ctx, d, func(*hostexec.Process) { _, _ = out.W.Close(), errs.W.Close() }, record)
	for to, c := range map[*string]*hostexec.Capture{&res.Stdout: out, &res.Stderr: errs} {
		head, tail, omitted := c.Close()
		text := string(head)
		if omitted > 0 {
			text += fmt.Sprintf("\n[%d bytes omitted, which are not kept]\n", omitted)
			res.Truncated = true
		}
		*to = strings.ToValidUTF8(text+string(tail), "\uFFFD")
	}
	switch {
	case ctx.Err() != nil:
		return res, context.Cause(ctx)
	case errors.Is(err, hostexec.ErrNotRecorded): // it has run all the same
		fmt.Fprintln(os.Stderr, "hutch-mcp:", err)
		err = nil
	}
	return res, err
}

// hostText is what a model reads of a command on the host.
func hostText(r *api.ToolCommand, d *api.Decision) string {
	var text strings.Builder
	line := func(s string) {
		if t := text.String(); t != "" && !strings.HasSuffix(t, "\n") {
			text.WriteByte('\n')
		}
		text.WriteString(s)
	}
	text.WriteString(r.Stdout)
	if r.Stderr != "" {
		line("[stderr]\n" + r.Stderr)
	}
	line(fmt.Sprintf("[ran on the HOST, not in the sandbox: mode %s]", d.Mode))
	switch {
	case r.Verdict == api.VerdictNotRun:
		line(fmt.Sprintf("[not run: %s]", r.Error))
	case r.TimedOut:
		line(fmt.Sprintf("[killed at its timeout, after %.1f s]", r.DurationMS/1e3))
	default:
		line(fmt.Sprintf("[exit code %d, %.1f s]", r.ExitCode, r.DurationMS/1e3))
	}
	return text.String()
}
