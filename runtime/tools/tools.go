// Package tools is what a language model works with in a sandbox: tools.list and tools.call. A tool checks its
// arguments, has the sandbox's worker or a command do what it stands for, and makes a result of what came back that is
// bounded, says how to go on, and says what to do where it failed. What a sandbox says in a result is the sandbox's
// word.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// Config is what a Set works with.
type Config struct {
	Sandboxes *sandbox.Manager
	Events    sandbox.Events
}

// Set are the tools of one daemon.
type Set struct {
	cfg       Config
	list      []*tool
	downloads downloads
	exposing  exposing
}

// tool is one of them.
type tool struct {
	api.Tool
	// timeout bounds a call; 0 where the tool itself does.
	timeout time.Duration
	run     func(ctx context.Context, c *call, arguments json.RawMessage) (*api.ToolResult, error)
}

// call is one call under way.
type call struct {
	set     *Set
	sandbox string // its id
	workdir string
	user    string
	id      string // of the call itself
	undo    bool   // there is a checkpoint before it
	started func(exec string, pid int)
}

// answer is what a tool made of a call.
type answer struct {
	text   string            // for a model
	result any               // for programs
	more   []api.ToolContent // links and images
	failed bool              // text says how
}

// New makes the tools.
func New(cfg Config) (*Set, error) {
	s := &Set{cfg: cfg}
	s.downloads.boxes = cfg.Sandboxes.Files
	for _, defined := range []func() (*tool, error){
		readFile, writeFile, deleteFile, listDirectory, runCommand, grepFiles, findFiles, findReplace, applyPatch,
		s.downloadURL, exposePort, listPorts, closePort,
	} {
		t, err := defined()
		if err != nil {
			return nil, err
		}
		s.list = append(s.list, t)
	}
	return s, nil
}

// Close ends the links that were given out.
func (s *Set) Close() { s.downloads.close() }

// define makes a tool of a function with the tool's own types.
func define[A, R any](about api.Tool, timeout time.Duration, run func(ctx context.Context, c *call, a A) (answer,
	error)) (*tool, error) {
	t := &tool{Tool: about, timeout: timeout}
	for schema, of := range map[*json.RawMessage]reflect.Type{&t.InputSchema: reflect.TypeFor[A](),
		&t.OutputSchema: reflect.TypeFor[R]()} {
		object, err := params.Inline(of, schema == &t.InputSchema)
		if err == nil {
			*schema, err = json.Marshal(object)
		}
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", about.Name, err)
		}
	}
	t.run = func(ctx context.Context, c *call, raw json.RawMessage) (*api.ToolResult, error) {
		var a A
		if err := params.DecodeWhole(raw, &a); err != nil {
			return nil, err
		}
		if err := c.checkpoint(ctx, about.Name, &a); err != nil {
			return nil, err
		}
		made, err := run(ctx, c, a)
		if err != nil {
			return nil, err
		}
		structured, err := json.Marshal(made.result)
		if err != nil {
			return nil, err
		}
		content := append([]api.ToolContent{{Type: "text", Text: made.text}}, made.more...)
		return &api.ToolResult{Content: content, Structured: structured, IsError: made.failed}, nil
	}
	return t, nil
}

// fileTimeout bounds what works on files.
const fileTimeout = api.ToolFileTimeoutS * time.Second

// Tools describes them.
func (s *Set) Tools(context.Context, api.Empty) (out api.ToolList, err error) {
	for _, t := range s.list {
		out.Tools = append(out.Tools, t.Tool)
	}
	return out, nil
}

// CallTool calls a tool. started is called when a command of the tool's runs.
func (s *Set) CallTool(ctx context.Context, p api.ToolCallParams, started func(exec string, pid int)) (api.ToolResult,
	error) {
	t := s.find(p.Name)
	if t == nil {
		return api.ToolResult{}, api.Errorf(api.NotFound, "no tool %.64q", p.Name).WithOp(api.MethodToolsCall).
			WithField("name").
			WithHint("tools.list lists the tools: %s", strings.Join(s.names(), ", "))
	}
	box, err := s.cfg.Sandboxes.Get(p.Sandbox)
	if err != nil {
		return api.ToolResult{}, err
	}
	id, begin := history.NewCall(), time.Now()
	s.cfg.Events.Emit(api.EventToolCall, box.ID, "",
		api.ToolCallEvent{Call: id, Tool: t.Name, Arguments: summary(p.Arguments)})
	c := &call{set: s, sandbox: box.ID, workdir: box.Workdir, user: p.User, id: id, started: started}
	r, err := s.call(ctx, t, c, p.Arguments)
	ended := api.ToolMessageEvent{Call: id, Tool: t.Name, Status: "success", DurationMS: float64(time.Since(begin).
		Microseconds()) / 1e3}
	switch {
	case err != nil:
		ended.Status, ended.Error = "error", err.Error()
	case r.Error != nil:
		ended.Status, ended.Error = "error", r.Error.Message
	case r.IsError:
		ended.Status, ended.Error = "error", lastLine(r.Content[0].Text)
	}
	ended.Error = clip(ended.Error)
	s.cfg.Events.Emit(api.EventToolMessage, box.ID, "", ended)
	if err != nil {
		return api.ToolResult{}, err
	}
	r.Call = id
	if r.Undo = c.undo; c.undo {
		r.Content = append(r.Content, api.ToolContent{Type: "text", Text: "[call " + id + ": the user can undo it]"})
	}
	return *r, nil
}

// call makes a result of what a model can act on. An error is left where the caller is gone.
func (s *Set) call(ctx context.Context, t *tool, c *call, arguments json.RawMessage) (*api.ToolResult, error) {
	inner := ctx
	if t.timeout > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeoutCause(ctx, t.timeout,
			api.Errorf(api.DeadlineExceeded, "%s took longer than %v", t.Name, t.timeout).
				WithHint("narrow it down: a folder further down, fewer results"))
		defer cancel()
	}
	r, err := t.run(inner, c, arguments)
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return nil, err
	case inner.Err() != nil:
		err = context.Cause(inner)
	}
	return failure(err), nil
}

func (s *Set) find(name string) *tool {
	for _, t := range s.list {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (s *Set) names() []string {
	var list []string
	for _, t := range s.list {
		list = append(list, t.Name)
	}
	return list
}

// failure is the result of a tool that could not do what it was asked for.
func failure(err error) *api.ToolResult {
	e := &api.ToolError{Code: api.ErrorCode(err), Message: err.Error()}
	var ours *api.Error
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &wire): // of params.Decode
		e.Code, e.Message, e.Field, e.Hint = api.InvalidArgument, wire.Message, wire.Data.Field, wire.Data.Hint
	case errors.As(err, &ours):
		e.Field, e.Hint = ours.Field, ours.Hint
	}
	if e.Hint == "" && e.Code == api.InvalidArgument {
		e.Hint = "the tool's input schema says what it takes"
	}
	text := e.Message
	if e.Hint != "" {
		text += "\nhint: " + e.Hint
	}
	return &api.ToolResult{Content: []api.ToolContent{{Type: "text", Text: text}}, IsError: true, Error: e}
}
