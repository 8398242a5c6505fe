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

// codeAt calls sandbox_run_code, and returns where it ran, what came of it and what was said.
func (c mcpClient) codeAt(t testing.TB, arguments world.Args) (api.Where, api.CodeResult, string) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_code", Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, p := range r.Content {
		if p, ok := p.(*mcp.TextContent); ok {
			text.WriteString(p.Text + "\n")
		}
	}
	var res api.CodeResult
	if r.StructuredContent == nil {
		return "", res, text.String()
	}
	data, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(data, &res)
	}
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	where := res.Where
	if where == "" {
		where = api.WhereSandbox
	}
	if (where == api.WhereHost) != strings.Contains(text.String(), "ran on the HOST") {
		t.Errorf("%v: %s: %q", arguments, where, text.String())
	}
	return where, res, text.String()
}

const pyWhere = "import os\nos.readlink('/proc/self/ns/pid')"

// TestModeCode: code runs where commands would: on the host only by the mode that the user has started the server with,
// and of mode selective only what a scan finds harmless and needs no variables; held to that, whatever is in the
// folder.
func TestModeCode(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	allowHost(t, w, "")
	// What a sandbox may have left there, under names that a scan knows as harmless.
	for name, text := range map[string]string{"json.py": "print('EVIL')", "math.py": "print('EVIL')",
		"ast.py": "print('EVIL')", "sitecustomize.py": "print('EVIL')", "package.json": `{"type": "module"}`} {
		world.Write(t, filepath.Join(dir, name), text+"\n")
	}

	all := dialMCP(t, w, "--structured", "--workspace", dir+":rw")
	for _, a := range []world.Args{{}, {"fresh": true}} {
		a["language"], a["code"] = "python", pyWhere
		if where, _, text := all.codeAt(t, a); where != api.WhereSandbox || here(t, text) {
			t.Errorf("%v: %s: %q", a, where, text)
		}
		a["mode"] = "off"
		if where, _, text := all.codeAt(t, a); where != "" || here(t, text) || !strings.Contains(text, "mode") {
			t.Errorf("%v: %s: %q", a, where, text)
		}
	}

	c := dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "selective")
	if where, res, text := c.codeAt(t, world.Args{"language": "python", "fresh": true,
		"code": "import json, math\nprint(json.dumps([1]))\n6 * 7"}); where != api.WhereHost || res.Text != "42" ||
		res.Stdout != "[1]\n" || strings.Contains(text, "EVIL") {
		t.Errorf("%s: %q", where, text)
	}
	if where, res, text := c.codeAt(t, world.Args{"language": "python", "fresh": true,
		"code": "1 / 0"}); where != api.WhereHost || res.Error == nil || res.Error.Name != "ZeroDivisionError" {
		t.Errorf("%s: %q", where, text)
	}
	if where, res, text := c.codeAt(t,
		world.Args{"language": "shell", "code": "echo hi; expr 6 '*' 7"}); where != api.WhereHost ||
		res.Stdout != "hi\n42\n" {
		t.Errorf("%s: %q", where, text)
	}
	for _, a := range []world.Args{
		{"language": "python", "code": "6 * 7"}, {"language": "python", "code": "6 * 7", "context": "a"},
		{"language": "python", "fresh": true, "code": pyWhere},
		{"language": "python", "fresh": true, "code": "import helper"},
		{"language": "python", "fresh": true, "code": "open('own', 'w')"},
		{"language": "python", "fresh": true, "code": "eval('1')"},
		{"language": "python", "fresh": true, "code": "6 * 7", "mode": "all"},
		{"language": "shell", "code": "rm -f own"}, {"language": "python", "fresh": true, "code": "if"},
	} {
		where, _, text := c.codeAt(t, a)
		if where != api.WhereSandbox || here(t, text) || a["mode"] == nil &&
			!strings.Contains(text, "[mode selective: in the sandbox: ") {
			t.Errorf("%v: %s: %q", a, where, text)
		}
	}
	if where, _, text := c.codeAt(t,
		world.Args{"language": "go", "code": "package main\nfunc main() {}"}); where == api.WhereHost {
		t.Errorf("%s: %q", where, text)
	}
	if where, _, text := c.codeAt(t, world.Args{"language": "python", "fresh": true, "code": "1",
		"mode": "off"}); where != "" || !strings.Contains(text, "weaker") {
		t.Errorf("%s: %q", where, text)
	}
	t.Run("node", func(t *testing.T) { nodeSelective(t, c) })
}

// nodeSelective: JavaScript as well.
func nodeSelective(t *testing.T, c mcpClient) {
	world.Needs(t, "node")
	if where, res, text := c.codeAt(t, world.Args{"language": "javascript", "fresh": true,
		"code": "console.log('hi'); 6 * 7"}); where != api.WhereHost || res.Text != "42" || res.Stdout != "hi\n" {
		t.Errorf("%s: %q", where, text)
	}
	if where, _, text := c.codeAt(t, world.Args{"language": "javascript", "fresh": true,
		"code": "require('fs').readlinkSync('/proc/self/ns/pid')"}); where != api.WhereSandbox || here(t, text) {
		t.Errorf("%s: %q", where, text)
	}
}

// TestModeCodeOff: on the host with variables from call to call, its errors, files and time; each call is recorded.
func TestModeCodeOff(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	allowHost(t, w, "")
	c := dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "off")
	run := func(a world.Args) (api.CodeResult, string) {
		t.Helper()
		where, res, text := c.codeAt(t, a)
		if where != api.WhereHost {
			t.Errorf("%v: %s: %q", a, where, text)
		}
		return res, text
	}
	if res, text := run(world.Args{"language": "python", "code": "x = 41\n" + pyWhere}); !here(t, text) || !res.Begun ||
		res.Context != "default" {
		t.Errorf("%+v: %q", res, text)
	}
	if res, _ := run(world.Args{"language": "python", "code": "x + 1"}); res.Text != "42" || res.Begun {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python", "code": "x", "context": "other"}); res.Error == nil ||
		res.Error.Name != "NameError" || !res.Begun {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python", "code": "x", "fresh": true}); res.Error == nil ||
		res.Error.Name != "NameError" || res.Context != "" {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python",
		"code": "import os, sys\nopen('made.svg', 'w').write('<svg/>')\nprint('e', file=sys.stderr); os.system('echo sub')"}); res.Stderr != "e\n" || res.Stdout != "sub\n" || len(res.Artifacts) != 1 || res.Artifacts[0].Path != filepath.Join(dir, "made.svg") {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python", "code": "while True: pass", "timeout_s": 0.5}); !res.TimedOut ||
		res.Error == nil || res.Error.Name != "KeyboardInterrupt" {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python", "code": "x"}); res.Text != "41" { // it stays behind an interrupt
		t.Errorf("%+v", res)
	}
	died := world.Args{"language": "python", "code": "import os; os._exit(3)"}
	if res, _ := run(died); res.ExitCode != 3 || res.Error == nil {
		t.Errorf("%+v", res)
	}
	if res, _ := run(world.Args{"language": "python", "code": "print('y' * 40_000_000); 1"}); res.Text != "1" ||
		!res.Truncated || !res.Begun {
		t.Errorf("begun %v, truncated %v, text %q", res.Begun, res.Truncated, res.Text)
	}
	if res, _ := run(world.Args{"language": "shell", "code": "echo $$; exit 7"}); res.ExitCode != 7 ||
		res.Error == nil {
		t.Errorf("%+v", res)
	}
	if where, _, text := c.codeAt(t, world.Args{"language": "python", "code": pyWhere,
		"mode": "all"}); where != api.WhereSandbox || here(t, text) {
		t.Errorf("%s: %q", where, text)
	}
	rows := strings.Join(hostRows(t, w), ", ")
	if strings.Count(rows, "off host") != 10 || strings.Count(rows, "ended") != 10 ||
		!strings.HasSuffix(rows, "off host, ended 7") ||
		!strings.Contains(rows, "off host, ended 3, off host, ended 0") {
		t.Error(rows)
	}
}

// TestModeCodeKilled: a server that is killed leaves no interpreter on the host.
func TestModeCodeKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	allowHost(t, w, "")
	dir := w.Sub(t, "project")
	c := dialMCP(t, w, "--structured", "--workspace", dir+":rw", "--mode", "off")
	if where, _, text := c.codeAt(t, world.Args{"language": "python", "code": "1"}); where != api.WhereHost {
		t.Fatalf("%s: %q", where, text)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It fails: nobody answers any more.
		_, _ = c.CallTool(t.Context(), &mcp.CallToolParams{Name: "sandbox_run_code",
			Arguments: world.Args{"language": "python",
				"code": "import subprocess\nf = open('fifo', 'w')\nsubprocess.run(['sleep', '1000'], pass_fds=[f.fileno()])"}})
	}()
	fifo, err := os.Open(filepath.Join(dir, "fifo")) // when the code has opened it
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
}
