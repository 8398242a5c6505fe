package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// code runs code.
func (b *boxes) code(ctx context.Context, req *mcp.CallToolRequest, a *codeArguments) (*mcp.CallToolResult, error) {
	if !b.mine(a.Sandbox) {
		return failed(api.Errorf(api.NotFound, "sandbox %.64q is none of this session's", a.Sandbox).
			WithHint("sandbox_list lists them")), nil
	}
	result, note, err := b.hostCode(ctx, a)
	if err != nil {
		return b.problem(ctx, "", err)
	}
	if result != nil {
		return result, nil
	}
	c, id, err := b.get(ctx, a.Sandbox)
	if err != nil {
		return b.problem(ctx, id, err)
	}
	told := newProgress(ctx, req, c)
	r, err := client.Do(ctx, c, api.CallCodeRun, api.CodeParams{Sandbox: id, Language: a.Language, Code: a.Code,
		Context: a.Context, Fresh: a.Fresh, TimeoutS: a.TimeoutS, Progress: told != nil},
		client.WithProgress(told.output()))
	told.end()
	if err != nil {
		if api.ErrorCode(err) == api.FailedPrecondition && b.isOver(ctx, c, id) {
			return b.over(ctx, id)
		}
		return b.problem(ctx, id, err)
	}
	return showCode(&r, note), nil
}

// showCode is what a model reads of a run of code, with a note; images it sees as images.
func showCode(r *api.CodeResult, note string) *mcp.CallToolResult {
	var said strings.Builder
	said.WriteString(r.Stdout)
	part := func(name, what string) {
		if what == "" {
			return
		}
		if s := said.String(); s != "" && !strings.HasSuffix(s, "\n") {
			said.WriteByte('\n')
		}
		if name != "" {
			said.WriteString("[" + name + "]\n")
		}
		said.WriteString(what)
	}
	part("stderr", r.Stderr)
	part("value", r.Text)
	if e := r.Error; e != nil {
		if e.Traceback == "" {
			e.Traceback = e.Name + ": " + e.Value
		}
		part("error", e.Traceback)
	}
	for _, line := range api.Explain(r.Denials, r.Failures, r.Policy, r.Error != nil) {
		part("", "["+line+"]")
	}
	for _, f := range r.Artifacts {
		if f.Kind == "file" {
			part("", fmt.Sprintf("[file %s, %d bytes]", f.Path, f.Size))
		} else if f.MIMEType != "image/png" && f.Data != "" {
			part(f.Kind+" "+f.MIMEType, f.Data)
		}
	}
	part("", note)
	if said.Len() == 0 {
		said.WriteString("[done]")
	}
	out := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: said.String()}}, IsError: r.Error != nil}
	if r.Call != "" {
		out.Meta = mcp.Meta{metaCall: r.Call}
	}
	for _, f := range r.Artifacts {
		if !strings.HasPrefix(f.MIMEType, "image/") || f.MIMEType == "image/svg+xml" {
			continue
		}
		if data, err := base64.StdEncoding.DecodeString(f.Data); err == nil && len(data) > 0 {
			out.Content = append(out.Content, &mcp.ImageContent{Data: data, MIMEType: f.MIMEType})
		}
	}
	for i := range r.Artifacts { // they are content already
		r.Artifacts[i].Data = ""
	}
	if structured, err := json.Marshal(r); err == nil {
		out.StructuredContent = json.RawMessage(structured)
	}
	return out
}
