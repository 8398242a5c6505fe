package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// where calls sandbox_run_command, and returns where it ran and what was said.
func (c mcpClient) where(t testing.TB, arguments world.Args) (api.Where, string) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_command", Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, p := range r.Content {
		if p, ok := p.(*mcp.TextContent); ok {
			text.WriteString(p.Text + "\n")
		}
	}
	var res api.ToolCommand
	data, err := json.Marshal(r.StructuredContent)
	if err == nil && r.StructuredContent != nil {
		err = json.Unmarshal(data, &res)
	}
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if res.Where == "" && r.StructuredContent != nil {
		res.Where = api.WhereSandbox
	}
	if (res.Where == api.WhereHost) != strings.Contains(text.String(), "ran on the HOST") {
		t.Errorf("%v: %s: %q", arguments, res.Where, text.String())
	}
	return res.Where, text.String()
}

// TestModeMCP: a model's commands run on the host only by the mode that the user has started the server with, and it
// cannot ask for a weaker one.
func TestModeMCP(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "own"), "own\n")
	w.Run(t, "mcp", "--mode", "off", "--workspace", dir+":rw").Want(t, 125).Says(t, "host_execution: allowed")
	allowHost(t, w, "mode: off\n")
	w.OK(t, "config", "reload")
	for _, flags := range [][]string{{"--workspace", dir + ":overlay"}, {}, {"--workspace", dir + ":ro"},
		{"--workspace", dir, "--http", "127.0.0.1:0"}, {"--workspace", dir, "--private"}} {
		w.Run(t, append([]string{"mcp", "--mode", "off"}, flags...)...).Want(t, 125).Says(t, "--mode off")
	}

	// What the user has not given nobody can ask for: the configuration's mode is not a model's.
	c := dialMCP(t, w, "--structured", "--workspace", dir+":rw")
	if where, text := c.where(t, world.Args{"command": whereami}); where != api.WhereSandbox || here(t, text) {
		t.Errorf("%s: %q", where, text)
	}
	if where, text := c.where(t, world.Args{"command": whereami, "mode": "off"}); where != "" || here(t, text) ||
		!strings.Contains(text, "mode") {
		t.Errorf("%s: %q", where, text)
	}

	// Selective: by the scan, and never weaker.
	c = dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "selective")
	if text := c.InitializeResult().Instructions; !strings.Contains(text, "user's machine itself") {
		t.Errorf("%q", text)
	}
	if where, text := c.where(t, world.Args{"command": "echo hi; expr 6 '*' 7"}); where != api.WhereHost ||
		!strings.HasPrefix(text, "hi\n42\n") {
		t.Errorf("%s: %q", where, text)
	}
	if out := w.OK(t, "ps", "-aq"); len(strings.Fields(out)) != 1 {
		t.Errorf("a sandbox was made for a command on the host: %q", out)
	}
	for _, a := range []world.Args{
		{"command": "rm -f own2"}, {"command": "cat /etc/passwd"}, {"command": "cd / && cat etc/passwd"},
		{"command": "x=r; ${x}m -f own2"}, {"command": "echo cm0gb3duMg== | base64 -d | sh"}, {"command": "./own"},
		{"command": whereami + " | sh"}, {"command": "((rm -f own2))"}, {"command": "hash -p ./own ls; ls"},
		{"command": "echo hi", "cwd": "/workspace"}, {"command": "echo hi", "env": world.Args{"BASH_ENV": "./own"}},
		{"command": "ls", "stdin": "x"}, {"command": "sleep 1", "background": true},
		{"command": "echo hi", "mode": "all"}, {"argv": []string{"sh", "-c", "echo hi"}}, {"command": "if"},
	} {
		if where, text := c.where(t, a); where != api.WhereSandbox || a["mode"] == nil &&
			!strings.Contains(text, "[mode selective: in the sandbox: ") {
			t.Errorf("%v: %s: %q", a, where, text)
		}
	}
	for _, mode := range []string{"off", "OFF", "", "none"} {
		if where, text := c.where(t, world.Args{"command": whereami, "mode": mode}); where != "" || here(t, text) {
			t.Errorf("%q: %s: %q", mode, where, text)
		}
	}

	// Off: on the host, in the user's folder; what only a sandbox can do is an error.
	c = dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "off")
	if where, text := c.where(t, world.Args{"command": whereami + "; pwd; exit 3"}); where != api.WhereHost ||
		!here(t, text) || !strings.Contains(text, dir) || !strings.Contains(text, "exit code 3") {
		t.Errorf("%s: %q", where, text)
	}
	if where, text := c.where(t,
		world.Args{"argv": []string{"cat", "own"}, "cwd": "/workspace/."}); where != api.WhereHost ||
		!strings.HasPrefix(text, "own\n") {
		t.Errorf("%s: %q", where, text)
	}
	for _, mode := range []string{"all", "selective"} {
		where, text := c.where(t, world.Args{"command": whereami, "mode": mode})
		if where != api.WhereSandbox || here(t, text) {
			t.Errorf("%s: %s: %q", mode, where, text)
		}
	}
	for _, a := range []world.Args{{"command": "sleep 1", "background": true}, {"command": "true", "cwd": "/tmp"},
		{"command": "true", "cwd": "/workspace/../etc"}} {
		if where, text := c.where(t, a); where != "" || !strings.Contains(text, "mode all") {
			t.Errorf("%v: %s: %q", a, where, text)
		}
	}
	if rows := strings.Join(hostRows(t, w), ", "); strings.Count(rows, "selective host") != 1 ||
		strings.Count(rows, "off host") != 2 || strings.Contains(rows, "unreported") {
		t.Error(rows)
	}
}

// TestModeMCPKilled: a server that is killed leaves nothing on the host.
func TestModeMCPKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	dir := w.Sub(t, "project")
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "off")
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It fails: nobody answers any more.
		_, _ = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_command",
			Arguments: world.Args{"command": "setsid bash -c 'exec 3>fifo; sleep 1000' & wait"}})
	}()
	fifo, err := os.Open(filepath.Join(dir, "fifo")) // when the command has opened it
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if n, err := fifo.Read(make([]byte, 1)); n != 0 || err == nil { // EOF when the last that has it open is gone
		t.Errorf("%d, %v", n, err)
	}
	<-done
	if out := w.OK(t, "audit", "host", "--kind", "exec.decided"); strings.Count(out, "decision=host") != 1 {
		t.Error(out)
	}
}
