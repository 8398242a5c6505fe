package agent_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMCPProgress: who watches a command or code sees its output while it runs, bounded, and as text that does nothing
// to a terminal; who has no token gets nothing.
func TestMCPProgress(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := dialMCP(t, w, "host")
	p := &mcp.CallToolParams{Name: "sandbox_run_command", Arguments: world.Args{"command": `mkfifo /tmp/go
printf '\033[31mred\033]0;title\007\n'; echo bad >&2; read x </tmp/go; seq 1 100000; read x </tmp/go`}}
	p.SetProgressToken("p1")
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), p)
		done <- err
	}()
	if text := <-c.progress; !strings.HasPrefix(text, "runs as ex_") {
		t.Errorf("%q", text)
	}
	both := []string{<-c.progress, <-c.progress}
	slices.Sort(both)
	if !slices.Equal(both, []string{"[stderr]\nbad\n", "red\n"}) {
		t.Errorf("%q", both)
	}
	goOn := func() {
		t.Helper()
		c.call(t, "sandbox_run_command", false, world.Args{"command": "echo >/tmp/go"})
	}
	goOn()
	for {
		text := <-c.progress
		if len(text) > 2100 {
			t.Errorf("%d bytes", len(text))
		}
		if strings.HasSuffix(text, "\n99999\n100000\n") {
			break
		}
	}
	goOn()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Code too.
	world.Needs(t, "python3")
	p = &mcp.CallToolParams{Name: "sandbox_run_code", Arguments: world.Args{"language": "python", "code": `
print("\033[31mbegun", flush=True)
open("/tmp/go").read()
print("x" * 5000 + "end", flush=True)
open("/tmp/go").read()`}}
	p.SetProgressToken("p2")
	go func() {
		_, err := c.CallTool(t.Context(), p)
		done <- err
	}()
	if text := <-c.progress; text != "begun\n" {
		t.Errorf("%q", text)
	}
	goOn()
	if text := <-c.progress; !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "xend\n") || len(text) > 2100 {
		t.Errorf("%q", text)
	}
	goOn()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.call(t, "sandbox_run_command", false, world.Args{"command": "echo unseen"})
	if len(c.progress) > 0 {
		t.Errorf("%q", <-c.progress)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestMCPSchemas: with --structured each tool says what its results are, and keeps to it; all have titles. The skill
// tells of no other tools.
func TestMCPSchemas(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	c := dialMCP(t, w, "--structured", "host")
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tools.Tools) != 17 {
		t.Errorf("%d tools", len(tools.Tools))
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	skill, err := os.ReadFile(filepath.Join(root, "docs/agents/SKILL.md"))
	if err != nil || !strings.HasPrefix(string(skill), "---\nname: hutch-sandbox\ndescription: ") {
		t.Errorf("the skill: %v", err)
	}
	for _, name := range regexp.MustCompile("`(sandbox_\\w+)`").FindAllStringSubmatch(string(skill), -1) {
		if !slices.ContainsFunc(tools.Tools, func(tool *mcp.Tool) bool { return tool.Name == name[1] }) {
			t.Errorf("the skill tells of %s", name[1])
		}
	}
	required := map[string][]any{}
	for _, tool := range tools.Tools {
		schema, _ := tool.OutputSchema.(map[string]any)
		if tool.Title == "" || schema["type"] != "object" {
			t.Errorf("%s: title %q, output schema %v", tool.Name, tool.Title, schema)
		}
		required[tool.Name], _ = schema["required"].([]any)
	}
	object := func(name string, arguments world.Args) map[string]any {
		t.Helper()
		r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		if err != nil || r.IsError {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		made, ok := r.StructuredContent.(map[string]any)
		for _, member := range required[name] {
			if _, has := made[member.(string)]; !ok || !has {
				t.Errorf("%s: no %s in %v", name, member, r.StructuredContent)
			}
		}
		return made
	}
	object("sandbox_run_code", world.Args{"language": "python", "code": "1"})
	other := object("sandbox_create", world.Args{})
	list, _ := object("sandbox_list", world.Args{})["sandboxes"].([]any)
	if len(list) != 2 || list[1].(map[string]any)["sandbox"] != other["sandbox"] {
		t.Errorf("%v, created %v", list, other)
	}
	object("sandbox_remove", world.Args{"sandbox": other["sandbox"]})
	object("sandbox_write_file", world.Args{"path": "a", "content": "b"})
	object("sandbox_list_directory", world.Args{})
	object("sandbox_list_ports", world.Args{})
	object("sandbox_expose_port", world.Args{"port": 3000})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestMCPWorkdir: without a workspace the working folder is /workspace all the same, for commands and files, also in an
// image that has no such folder; the flags win.
func TestMCPWorkdir(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.ImportTiny(t, "tiny")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"host"}, "/workspace"},
		{[]string{"-u", "0", "tiny"}, "/workspace"},
		{[]string{"-w", "/srv", "host"}, "/srv"},
		{[]string{"-u", "1000", "host"}, "/"},
	} {
		c := dialMCP(t, w, tt.args...)
		if tt.want == "/workspace" {
			c.call(t, "sandbox_list_directory", false, nil) // before any command
			c.call(t, "sandbox_write_file", false, world.Args{"path": "made", "content": "x"})
		}
		sb, err := w.Connect(t).ListSandboxes(t.Context(), nil)
		if len(sb) == 0 {
			c.call(t, "sandbox_run_command", false, world.Args{"argv": []string{"pwd"}})
			sb, err = w.Connect(t).ListSandboxes(t.Context(), nil)
		}
		if err != nil || len(sb) != 1 || sb[0].Workdir != tt.want {
			t.Errorf("%q: %+v, %v", tt.args, sb, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMCPStart: what the flags name wrongly is found out at the start, with what to do.
func TestMCPStart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	there := world.Push(t, registry, "tiny", world.TinyImage(t))
	ended := w.Create(t, "--name", "ended", "host")
	w.OK(t, "kill", ended)
	for _, tt := range []struct{ arguments, says string }{
		{"--sandbox none", "none"},
		{"--sandbox ended", "hutch start"},
		{there + "-not", "not"},
		{"--pull never " + there, there},
		{"--template none", "none"},
	} {
		w.Run(t, append([]string{"mcp"}, strings.Fields(tt.arguments)...)...).Want(t, 1).Says(t, tt.says)
	}
	w.OK(t, "rm", "-f", ended)
	c := dialMCP(t, w, there)
	if _, err := w.Connect(t).InspectImage(t.Context(), there); err != nil {
		t.Error("the image was not fetched at the start:", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	// By its name as well.
	named := w.Create(t, "--name", "named", "host")
	c = dialMCP(t, w, "--sandbox", "named")
	if text := c.call(t, "sandbox_list", false, nil); !strings.HasPrefix(text, named) {
		t.Errorf("%q", text)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	w.OK(t, "rm", "-f", named)
}

// dialAsked is dialMCP for a client that asks its user by answer.
func dialAsked(t testing.TB, w *world.World, answer func(*mcp.ElicitParams) *mcp.ElicitResult,
	args ...string) mcpClient {
	t.Helper()
	c := mcpClient{cmd: w.Command(append([]string{"mcp"}, args...)...)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r := answer(req.Params); r != nil {
				return r, nil
			}
			<-ctx.Done() // nobody answers
			return nil, context.Cause(ctx)
		},
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), &mcp.CommandTransport{Command: c.cmd}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connecting is a command that wants to reach a name, and fails in any case.
func connecting(name string) world.Args {
	return world.Args{"command": fmt.Sprintf(`python3 -c '
import socket, sys
s = socket.create_connection(("%[1]s", 80))
s.sendall(b"GET / HTTP/1.0\r\nHost: %[1]s\r\n\r\n")
sys.exit(s.recv(100).decode() or 1)'`, name)}
}

// noNames is a resolver that knows no name (RFC 1035, 4.1.1: RCODE 3).
func noNames(t testing.TB) (address string) {
	t.Helper()
	l, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := make([]byte, 512); ; {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			if n > 4 {
				b[2], b[3] = b[2]|0x80, 0x83
				_, _ = l.WriteTo(b[:n], from)
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.LocalAddr().String()
}

// TestMCPAsk: with --ask the client's user is asked, and the answers are those of hutch network answer; who answers
// elsewhere ends the question at the client.
func TestMCPAsk(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t, "HUTCH_NETWORK_RESOLVER="+noNames(t))
	accept := func(answer string) *mcp.ElicitResult {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}
	}
	asked := make(chan string, 10)
	c := dialAsked(t, w, func(p *mcp.ElicitParams) *mcp.ElicitResult {
		asked <- p.Message
		switch {
		case strings.Contains(p.Message, "denied.test"):
			return accept("deny")
		case strings.Contains(p.Message, "declined.test"):
			return &mcp.ElicitResult{Action: "decline"}
		case strings.Contains(p.Message, "session.test"):
			return accept("session")
		case strings.Contains(p.Message, "once.test"):
			return accept("once")
		}
		return nil
	}, "--ask", "host")
	if text := c.InitializeResult().Instructions; !strings.Contains(text, "the user is asked") {
		t.Errorf("%q", text)
	}
	for name, refused := range map[string]bool{
		"denied.test": true, "declined.test": true, "session.test": false, "once.test": false,
	} {
		text := c.call(t, "sandbox_run_command", true, connecting(name))
		if message := <-asked; !strings.Contains(message, name+":80") || !strings.Contains(message, "--allow "+name) {
			t.Errorf("%s: %q", name, message)
		}
		if strings.Contains(text, "the sandbox refused net "+name) != refused {
			t.Errorf("%s: %s", name, text)
		}
	}
	id := strings.TrimSpace(w.OK(t, "ps", "-aq"))
	if policy := w.OK(t, "network", "get", id); !strings.Contains(policy, "session.test") ||
		strings.Contains(policy, `"once.test"`) {
		t.Errorf("%s", policy)
	}
	// Somebody else is faster.
	done := make(chan string, 1)
	go func() { done <- c.call(t, "sandbox_run_command", true, connecting("silent.test")) }()
	<-asked
	asks, err := w.Connect(t).Asks(t.Context())
	if err != nil || len(asks.Pending) != 1 {
		t.Fatalf("%+v, %v", asks, err)
	}
	w.OK(t, "network", "answer", asks.Pending[0].ID, "deny")
	if text := <-done; !strings.Contains(text, "the sandbox refused net silent.test") {
		t.Errorf("%s", text)
	}
	// Of others' sandboxes nobody is asked here.
	foreign := w.Create(t, "--ask", "host")
	if c := w.Connect(t); c != nil {
		events, err := c.Subscribe(t.Context(), api.SubscribeParams{Sandbox: foreign,
			Kinds: []api.EventKind{api.EventNetworkAsk}})
		if err != nil {
			t.Fatal(err)
		}
		other := w.Launch(t, "exec", foreign, "--", "sh", "-c", connecting("foreign.test")["command"].(string))
		q := world.Decode[api.AskEvent](t, string(world.NextOf(t, events, api.EventNetworkAsk).Data))
		w.OK(t, "network", "answer", q.ID, "deny")
		if world.Await(t, other.Cmd) == 0 {
			t.Error("it was allowed")
		}
	}
	c.call(t, "sandbox_run_command", false, world.Args{"command": "true"})
	if len(asked) > 0 {
		t.Errorf("%q", <-asked)
	}
	w.OK(t, "rm", "-f", foreign)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestMCPAskHTTP: over HTTP the question reaches the client beside the answer to its call; a client that cannot be
// asked leaves it to hutch network answer.
func TestMCPAskHTTP(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	url, _ := mcpHTTP(t, w, "--ask")
	asked := make(chan string, 10)
	dial := func(o *mcp.ClientOptions) mcpClient {
		t.Helper()
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, o).Connect(t.Context(),
			&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: httpClient(), DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return mcpClient{ClientSession: s}
	}
	c := dial(&mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked <- req.Params.Message
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	if text := c.call(t, "sandbox_run_command", true, connecting("denied.test")); !strings.Contains(text,
		"the sandbox refused net denied.test") || len(asked) != 1 {
		t.Errorf("%s, asked %d times", text, len(asked))
	}
	mute := dial(nil)
	events, err := w.Connect(t).Subscribe(t.Context(), api.SubscribeParams{Kinds: []api.EventKind{api.EventNetworkAsk}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 1)
	go func() { done <- mute.call(t, "sandbox_run_command", true, connecting("mute.test")) }()
	q := world.Decode[api.AskEvent](t, string(world.NextOf(t, events, api.EventNetworkAsk).Data))
	w.OK(t, "network", "answer", q.ID, "deny")
	if text := <-done; !strings.Contains(text, "the sandbox refused net mute.test") || len(asked) != 1 {
		t.Errorf("%s, asked %d times", text, len(asked))
	}
	_, _ = c.Close(), mute.Close()
}
