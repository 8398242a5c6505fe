package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// mcpClient is an MCP client, the SDK's, of a server that it has started.
type mcpClient struct {
	*mcp.ClientSession
	cmd      *exec.Cmd
	progress chan string
}

func dialMCP(t testing.TB, w *world.World, args ...string) mcpClient {
	t.Helper()
	c := mcpClient{cmd: w.Command(append([]string{"mcp"}, args...)...), progress: make(chan string, 10)}
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context,
			req *mcp.ProgressNotificationClientRequest) {
			c.progress <- req.Params.Message
		},
	})
	var err error
	if c.ClientSession, err = client.Connect(t.Context(), &mcp.CommandTransport{Command: c.cmd}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// call calls a tool and returns the texts of its result.
func (c mcpClient) call(t testing.TB, name string, wantErr bool, arguments map[string]any) string {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var text strings.Builder
	for _, p := range r.Content {
		if p, ok := p.(*mcp.TextContent); ok {
			text.WriteString(p.Text)
		}
	}
	if r.IsError != wantErr {
		t.Fatalf("%s %v: %s", name, arguments, text.String())
	}
	return text.String()
}

// TestMCP: an MCP client that is not ours finds the tools, works in a sandbox that is made when it needs one, and
// leaves none.
func TestMCP(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "main.txt"), "one\n")
	c := dialMCP(t, w, "--workspace", dir+":overlay", "host")
	if text := c.InitializeResult().Instructions; !strings.Contains(text, "no network") ||
		!strings.Contains(text, "/workspace") {
		t.Errorf("%q", text)
	}
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if tool.Annotations == nil || tool.Description == "" || tool.OutputSchema != nil {
			t.Errorf("%+v", tool)
		}
		if at := slices.Contains([]string{"sandbox_run_command", "sandbox_read_file", "sandbox_write_file",
			"sandbox_find_replace"}, tool.Name); at != (tool.Meta["anthropic/alwaysLoad"] == true) {
			t.Errorf("%s: %v", tool.Name, tool.Meta)
		}
	}
	for _, want := range []string{"sandbox_write_file", "sandbox_run_command", "sandbox_list_directory",
		"sandbox_create", "sandbox_run_code"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("made before anybody needs it: %q", out)
	}

	c.call(t, "sandbox_write_file", false, world.Args{"path": "new.txt", "content": "two\n"})
	if text := c.call(t, "sandbox_run_command", false,
		world.Args{"command": "cat main.txt new.txt"}); !strings.HasPrefix(text, "one\ntwo\n[exit code 0") {
		t.Errorf("%q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.txt")); err == nil {
		t.Error("the folder was touched")
	}
	text := c.call(t, "sandbox_run_command", true, world.Args{"command": "exit 3"})
	if !strings.Contains(text, "exit code 3") {
		t.Errorf("%q", text)
	}
	if text := c.call(t, "sandbox_write_file", true, world.Args{"path": "x"}); !strings.Contains(text, "content") {
		t.Errorf("%q", text)
	}
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_command",
		Arguments: world.Args{"command": "seq 1 30000"}})
	if err != nil {
		t.Fatal(err)
	}
	link, ok := r.Content[1].(*mcp.ResourceLink)
	if !ok || r.StructuredContent != nil { // models would be shown that, and not the text
		t.Fatalf("%+v", r.Content)
	}
	if res, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI}); err != nil ||
		!strings.HasSuffix(res.Contents[0].Text, "\n29999\n30000\n") || len(res.Contents[0].Text) != 168894 {
		t.Errorf("%v", err)
	}
	own := strings.TrimSpace(w.OK(t, "ps", "-aq"))
	if res, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "hutch://" + own +
		"/file/workspace/new.txt"}); err != nil || res.Contents[0].Text != "two\n" {
		t.Errorf("%v", err)
	}
	for _, uri := range []string{"hutch://" + own + "/file/none", "hutch://sb_other/file/etc/passwd",
		"file:///etc/passwd"} {
		if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s is there", uri)
		}
	}

	// Another sandbox; one of somebody else's.
	other := strings.SplitN(c.call(t, "sandbox_create", false, world.Args{}), "\n", 2)[0]
	if text := c.call(t, "sandbox_run_command", false,
		world.Args{"sandbox": other, "command": "cat new.txt 2>/dev/null || echo none"}); !strings.HasPrefix(text,
		"none\n") {
		t.Errorf("%q", text)
	}
	foreign := w.Create(t, "host")
	c.call(t, "sandbox_run_command", true, world.Args{"sandbox": foreign, "command": "true"})
	c.call(t, "sandbox_remove", true, world.Args{"sandbox": foreign})
	c.call(t, "sandbox_remove", false, world.Args{"sandbox": other})
	w.OK(t, "rm", "-f", foreign)

	// One that has ended is reported once, and replaced.
	w.OK(t, "kill", own)
	text = c.call(t, "sandbox_run_command", true, world.Args{"command": "true"})
	if !strings.Contains(text, "has ended") {
		t.Errorf("%q", text)
	}
	c.call(t, "sandbox_run_command", false, world.Args{"command": "true"})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("left: %q", out)
	}
}

// TestMCPRegistries: a model cannot have the daemon speak to whatever it likes by naming images there.
func TestMCPRegistries(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	var asked atomic.Int32
	anything := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer anything.Close()
	host := strings.TrimPrefix(anything.URL, "http://")
	c := dialMCP(t, w, "host")
	text := c.call(t, "sandbox_create", true, world.Args{"image": host + "/the-secret:1"})
	if !strings.Contains(text, "--registry "+host) || asked.Load() > 0 {
		t.Errorf("%q, and %d requests", text, asked.Load())
	}
	there := world.Push(t, imagetest.StartRegistry(t), "tiny", world.TinyImage(t))
	w.OK(t, "image", "pull", "-q", there)
	c.call(t, "sandbox_create", false, world.Args{"image": there}) // nothing is fetched
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	allowed := dialMCP(t, w, "--registry", host, "host")
	allowed.call(t, "sandbox_create", true, world.Args{"image": host + "/the-secret:1"})
	if asked.Load() == 0 {
		t.Error("a registry that the user named was not asked")
	}
	if err := allowed.Close(); err != nil {
		t.Error(err)
	}
}

// TestMCPCancel: cancelling a call kills its command, of which progress has told; a client that is killed leaves
// nothing.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := dialMCP(t, w, "host")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		p := &mcp.CallToolParams{Name: "sandbox_run_command", Arguments: world.Args{"command": "sleep 1000"}}
		p.SetProgressToken("p1")
		_, err := c.CallTool(ctx, p)
		done <- err
	}()
	if text := <-c.progress; !strings.Contains(text, "ex_") {
		t.Errorf("%q", text)
	}
	cancel(errors.New("enough"))
	if err := <-done; err == nil {
		t.Error("no error")
	}
	for deadline := time.Now().Add(world.AWhile()); ; {
		if text := c.call(t, "sandbox_run_command", false,
			world.Args{"command": "ps -e -o comm= | grep -c '^sleep$' || true"}); strings.HasPrefix(text, "0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the command still runs")
		}
	}
	id := strings.TrimSpace(w.OK(t, "ps", "-aq"))
	gone := awaitRemoved(t, w.Connect(t), id)
	if err := c.cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone()
}

// TestMCPCode: code, whose images come as images.
func TestMCPCode(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w := world.New(t)
	c := dialMCP(t, w, "--structured", "--scope", "agent:m", "host")
	c.call(t, "sandbox_run_code", false, world.Args{"language": "python", "code": "x = 20"})
	if text := c.call(t, "sandbox_run_code", false,
		world.Args{"language": "python", "code": "print('o')\nx + 1"}); text != "o\n[value]\n21" {
		t.Errorf("%q", text)
	}
	if text := c.call(t, "sandbox_run_code", true,
		world.Args{"language": "python", "code": "1/0"}); !strings.Contains(text, "ZeroDivisionError") {
		t.Errorf("%q", text)
	}
	if text := c.call(t, "sandbox_run_code", true,
		world.Args{"language": "python",
			"code": "import socket; socket.gethostbyname('web.test')"}); !strings.Contains(text,
		"the sandbox refused net web.test: the sandbox has no network; to allow it: --allow web.test") {
		t.Errorf("%q", text)
	}
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_code",
		Arguments: world.Args{"language": "python", "code": "class P:\n  def _repr_png_(self): return b'png'\nP()"}})
	if err != nil || len(r.Content) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if image, ok := r.Content[1].(*mcp.ImageContent); !ok || image.MIMEType != "image/png" ||
		string(image.Data) != "png" {
		t.Errorf("%+v", r.Content[1])
	}
	if text, err := json.Marshal(r.StructuredContent); err != nil || strings.Contains(string(text), "cG5n") {
		t.Errorf("%s, %v", text, err)
	}
	_ = c.Close()
	if got := w.OK(t, "scope", "ls", "-q"); got != "agent:m\n" {
		t.Errorf("%q", got)
	}
	w.OK(t, "scope", "end", "agent:m")
}

// bearer adds a token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "bearer "+string(b)) // a scheme has no case
	return http.DefaultTransport.RoundTrip(r)
}

// mcpToken is what servers over HTTP ask for.
const mcpToken = bearer("0123456789abcdef")

func httpClient() *http.Client { return &http.Client{Transport: mcpToken} }

// mcpHTTP starts a server over HTTP, and returns where it listens.
func mcpHTTP(t testing.TB, w *world.World, args ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	w.OK(t, "rpc", "system.info") // the daemon, which would keep stderr open
	file := w.Path("token")
	if err := os.WriteFile(file, []byte(mcpToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = w.Command(slices.Concat([]string{"mcp", "--http", "127.0.0.1:0", "--token-file", file}, args,
		[]string{"host"})...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that has failed
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	said := bufio.NewReader(stderr)
	line, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // it must not wait for a reader
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("%q", line)
	}
	return url, cmd
}

// TestMCPHTTP: sessions over HTTP have sandboxes of their own, gone with them; without the token, or from a web page,
// nobody gets in.
func TestMCPHTTP(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	url, cmd := mcpHTTP(t, w)
	for _, tt := range []struct {
		status int
		change func(*http.Request)
	}{
		{http.StatusUnauthorized, func(*http.Request) {}},
		{http.StatusUnauthorized, func(r *http.Request) { r.Header.Set("Authorization", "Bearer 0123456789abcdeX") }},
		{http.StatusForbidden, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+string(mcpToken))
			r.Host = "evil.example"
		}},
		{http.StatusForbidden, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+string(mcpToken))
			r.Header.Set("Origin", "http://evil.example")
		}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		tt.change(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%v %v: %s, want %d", req.Host, req.Header, resp.Status, tt.status)
		}
	}
	dial := func() mcpClient {
		t.Helper()
		s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{
				Endpoint: url, HTTPClient: httpClient(),
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return mcpClient{ClientSession: s}
	}
	a, b := dial(), dial()
	a.call(t, "sandbox_write_file", false, world.Args{"path": "/tmp/mine", "content": "a"})
	if text := a.call(t, "sandbox_run_command", false, world.Args{"command": "cat /tmp/mine"}); !strings.HasPrefix(text,
		"a\n[") {
		t.Errorf("%q", text)
	}
	if text := b.call(t, "sandbox_run_command", false,
		world.Args{"command": "cat /tmp/mine 2>/dev/null || echo none"}); !strings.HasPrefix(text, "none\n") {
		t.Errorf("%q", text)
	}
	ids := strings.Fields(w.OK(t, "ps", "-aq"))
	if len(ids) != 2 {
		t.Fatalf("%q", ids)
	}
	gone := awaitRemoved(t, w.Connect(t), ids[0])
	_ = a.Close()
	gone()
	gone = awaitRemoved(t, w.Connect(t), ids[1])
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	gone()
	_ = b.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	w.Run(t, "mcp", "--http", "0.0.0.0:0", "host").Want(t, 1).Says(t, "loopback")
}
