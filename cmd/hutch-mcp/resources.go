package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Resources: files of the session's sandboxes, and what commands have written.
//
//	hutch://SANDBOX/file/PATH
//	hutch://SANDBOX/exec/EXEC/stdout

func execURI(sandbox, exec string, stream api.Stream) string {
	return fmt.Sprintf("hutch://%s/exec/%s/%s", sandbox, exec, stream)
}

// maxResource bounds one, in bytes: the SDK has it in memory several times.
const maxResource = 8 << 20

func addResources(s *mcp.Server) {
	read := func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		data, err := boxesOf(ctx).resource(ctx, req.Params.URI)
		if err != nil {
			return nil, err
		}
		c := &mcp.ResourceContents{URI: req.Params.URI}
		if utf8.Valid(data) {
			c.MIMEType, c.Text = "text/plain", string(data)
		} else {
			c.MIMEType, c.Blob = "application/octet-stream", data
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
	}
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "file", Title: "A file in a sandbox",
		URITemplate: "hutch://{sandbox}/file/{+path}"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "output", Title: "What a command has written, stdout or stderr",
		URITemplate: "hutch://{sandbox}/exec/{exec}/{stream}"}, read)
}

// resource reads one.
func (b *boxes) resource(ctx context.Context, uri string) ([]byte, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "hutch" || u.Host == "" || !b.mine(u.Host) {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	c, err := b.connection(ctx)
	if err != nil {
		return nil, err
	}
	// Both give base64, and the next offset.
	var next func(offset int64) (data string, end int64, eof bool, err error)
	if path, ok := strings.CutPrefix(u.Path, "/file/"); ok {
		next = func(offset int64) (string, int64, bool, error) {
			f, err := c.ReadFile(ctx, api.FileReadParams{FileParams: api.FileParams{Sandbox: u.Host, Path: "/" + path},
				Offset: offset, Encoding: api.Base64}, nil)
			return f.Data, f.Next, f.EOF, err
		}
	} else if parts := strings.Split(u.Path, "/"); len(parts) == 4 && parts[1] == "exec" {
		ex, err := c.GetExec(ctx, parts[2])
		if err != nil || ex.Sandbox != u.Host {
			return nil, mcp.ResourceNotFoundError(uri)
		}
		next = func(offset int64) (string, int64, bool, error) {
			o, err := c.ExecRead(ctx, api.ReadParams{Exec: parts[2], Stream: api.Stream(parts[3]), Offset: offset,
				Encoding: api.Base64})
			return o.Data, o.Next, o.EOF || o.Data == "", err
		}
	} else {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	var all []byte
	for offset := int64(0); len(all) < maxResource; {
		text, end, eof, err := next(offset)
		if err != nil {
			if api.ErrorCode(err) == api.NotFound {
				return nil, mcp.ResourceNotFoundError(uri)
			}
			return nil, err
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		all, offset = append(all, data...), end
		if eof {
			break
		}
	}
	return all[:min(len(all), maxResource)], nil
}
