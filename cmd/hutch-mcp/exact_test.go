package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestExact: who has an id or a progress token that the SDK would round is told so, with that id, and so is who sends
// what is no message; others are heard.
func TestExact(t *testing.T) {
	for _, tt := range []struct{ message, want string }{
		{`{"id":1,"method":"ping"}`, ""},
		{`{"id":9007199254740992}`, ""},
		{`{"id":-9007199254740992}`, ""},
		{`{"id":"9007199254740993"}`, ""},
		{`{"id":9007199254740993}`,
			`"id":9007199254740993,"error":{"code":-32600,"message":"the id 9007199254740993 is`},
		{`{"id":-9007199254740993}`, `"id":-9007199254740993,`},
		{`{"id":99999999999999999999999999}`, `"id":99999999999999999999999999,`},
		{`{"id":1,"params":{"_meta":{"progressToken":9007199254740993}}}`,
			`"id":1,"error":{"code":-32600,"message":"the progressToken`},
		{`{"params":{"_meta":{"progressToken":9007199254740993}}}`, `"id":null,`},
		{`{"id":1,"params":{"_meta":{"progressToken":"9007199254740993"}}}`, ""},
		{`{"id":1,"params":{"arguments":{"offset":9007199254740993}}}`, ""}, // arguments stay as they are
		{`[{"id":1},{"id":9007199254740993}]`, `"id":9007199254740993,`},
		{`{"id":9007199254740993`, `"id":null,"error":{"code":-32700,`},
		{strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), `"id":null,"error":{"code":-32700,`},
		{`{"id":7,"long":"` + strings.Repeat("x", mcp.DefaultMaxLineLength) + `"}`, `"id":7,"error":{"code":-32600,`},
		{strings.Repeat("x", mcp.DefaultMaxLineLength+1), `"id":null,"error":{"code":-32600,`},
	} {
		var out bytes.Buffer
		in := &exactReader{in: bufio.NewReader(strings.NewReader(tt.message + "\n{}\n")), answer: &out}
		passed, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		want := tt.message + "\n{}\n"
		if tt.want != "" {
			want = "{}\n"
		}
		if string(passed) != want || !strings.Contains(out.String(), tt.want) || tt.want == "" && out.Len() > 0 {
			t.Errorf("%.100s: answered %q, passed on %.100q", tt.message, out.String(), passed)
		}
	}
}
