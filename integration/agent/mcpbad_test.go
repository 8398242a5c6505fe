package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// rawMCP is a client that writes what it likes.
type rawMCP struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startRaw(t testing.TB, w *world.World) *rawMCP {
	t.Helper()
	c := &rawMCP{cmd: w.Command("mcp", "host")}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that has failed
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	c.say(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},
		"clientInfo":{"name":"raw","version":"1"}}}`)
	c.answer(t)
	return c
}

func (c *rawMCP) say(t testing.TB, message string) {
	t.Helper()
	if _, err := io.WriteString(c.in, strings.ReplaceAll(message, "\n", "")+"\n"); err != nil {
		t.Fatal(err)
	}
}

// answer is the next answer, or "" at the end.
func (c *rawMCP) answer(t testing.TB) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		return ""
	}
	return line
}

// calling is the message that calls a tool.
func calling(t testing.TB, id int, name string, arguments world.Args) string {
	t.Helper()
	text, err := json.Marshal(world.Args{"jsonrpc": "2.0", "id": id, "method": "tools/call",
		"params": world.Args{"name": name, "arguments": arguments}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMCPBadInput: arguments that are too large, names with what no name has, and messages that are none get errors
// that say why; the session and its sandbox go on.
func TestMCPBadInput(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := startRaw(t, w)
	c.say(t, calling(t, 1, "sandbox_write_file", world.Args{"path": "kept", "content": "kept"}))
	if a := c.answer(t); !strings.Contains(a, "created kept") {
		t.Fatal(a)
	}
	large := strings.Repeat("x", 5<<20)
	const tooLarge = "at most 4128768 are possible"
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for i, tt := range []struct{ message, says string }{
		{calling(t, 2, "sandbox_write_file", world.Args{"path": "large", "content": large}), tooLarge},
		{calling(t, 2, "sandbox_run_command", world.Args{"command": "true", "env": world.Args{"A": large}}), tooLarge},
		{calling(t, 2, "sandbox_run_code", world.Args{"language": "shell", "code": large}), tooLarge},
		{calling(t, 2, large, nil), "unknown tool"},
		{calling(t, 2, "sandbox_read\x00\x1b[31m\nfile", nil), "unknown tool"},
		{calling(t, 2, "sandbox_read_file", world.Args{"path": "a\x00b"}), "path"},
		{calling(t, 2, "sandbox_read_file", world.Args{"path": "\x1b[31mred\n[exit code 0]"}), "no such file"},
		{calling(t, 2, "sandbox_read_file", world.Args{"path": strings.Repeat("a/", 3000)}), "path"},
		{calling(t, 2, "sandbox_read_file", world.Args{"path": "kept", "sandbox": "sb_\x1b[31m" + large[:1<<20]}),
			"none of this session"},
		{calling(t, 2, "sandbox_create", world.Args{"image": "a\nb\x1b[31m"}), "image"},
		{calling(t, 2, "sandbox_create", world.Args{"image": large}), ""},
		{calling(t, 2, "sandbox_run_command", world.Args{"command": "true", "unknown\x1b": 1}), "unknown"},
		{calling(t, 2, "sandbox_expose_port", world.Args{"port": 1 << 40}), "port"},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_run_command","arguments":` + deep + `}}`,
			"nested too deeply"},
		{`{"jsonrpc":"2.0","id":2,"method":`, "is no JSON"},
		{"\x00\xff{", "is no JSON"},
		{`{"jsonrpc":"2.0","id":2,"method":"ping","params":{"a":"` + strings.Repeat("x", 17<<20) + `"}}`,
			`"id":2,"error":{"code":-32600,"message":"the message has more than`},
		{`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_run_command","arguments":null}}`,
			"missing"},
		{`{"jsonrpc":"2.0","id":2,"method":"no/such\u001b[31m","params":{}}`, "no/such"},
	} {
		c.say(t, tt.message)
		a := c.answer(t)
		if a == "" {
			t.Fatalf("%d: the server is gone after %.80s", i, tt.message)
		}
		if !strings.Contains(a, tt.says) || len(a) > 8<<10 || strings.Contains(a, "\x1b") ||
			!strings.Contains(a, `"isError":true`) && !strings.Contains(a, `"error":`) {
			t.Errorf("%d: %.80s: %.300s (%d bytes)", i, tt.message, a, len(a))
		}
	}
	c.say(t, calling(t, 3, "sandbox_read_file", world.Args{"path": "kept"}))
	if a := c.answer(t); !strings.Contains(a, "kept") || strings.Contains(a, "isError") {
		t.Errorf("%.300s", a)
	}
	if out := strings.Fields(w.OK(t, "ps", "-aq")); len(out) != 1 {
		t.Errorf("%q", out)
	}
	_ = c.in.Close()
	if code := world.Await(t, c.cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("left: %q", out)
	}
}

// TestMCPVanish: whoever closes the pipe while a command runs, reads nothing, or sends a line without an end leaves
// nothing behind.
func TestMCPVanish(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	for name, vanish := range map[string]func(c *rawMCP){
		"closes":  func(c *rawMCP) { _ = c.in.Close() },
		"is mute": func(c *rawMCP) { _ = c.cmd.Process.Signal(unix.SIGKILL) },
		"breaks off": func(c *rawMCP) {
			_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":9,"method":"tools/ca`)
			_ = c.in.Close()
		},
	} {
		c := startRaw(t, w)
		c.say(t, calling(t, 1, "sandbox_run_command", world.Args{"command": "true"}))
		c.answer(t)
		id := strings.TrimSpace(w.OK(t, "ps", "-aq"))
		d := w.Connect(t)
		started, err := d.Subscribe(t.Context(),
			api.SubscribeParams{Sandbox: id, Kinds: []api.EventKind{api.EventExecStarted}})
		if err != nil {
			t.Fatal(err)
		}
		gone := awaitRemoved(t, d, id)
		for i := range 3 { // nobody reads what they write
			c.say(t, calling(t, 2+i, "sandbox_run_command", world.Args{"command": "yes", "output_bytes": 262144}))
			world.NextOf(t, started, api.EventExecStarted)
		}
		vanish(c)
		gone()
		if code := world.Await(t, c.cmd); name != "is mute" && code != 0 {
			t.Errorf("%s: exit code %d", name, code)
		}
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("left: %q", out)
	}
}

// TestMCPCancelHTTP: a call over HTTP that is cancelled by its id ends, with its command, and another one does not.
func TestMCPCancelHTTP(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	url, _ := mcpHTTP(t, w)
	b, _ := openMCP(t, url)
	if a := b.run(t, "true"); !strings.Contains(a, "exit code 0") {
		t.Fatal(a)
	}
	id := strings.TrimSpace(w.OK(t, "ps", "-aq"))
	d := w.Connect(t)
	events, err := d.Subscribe(t.Context(), api.SubscribeParams{Sandbox: id,
		Kinds: []api.EventKind{api.EventExecStarted, api.EventExecExited}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.send(t, "POST", calling(t, 77, "sandbox_run_command", world.Args{"command": "sleep 1000"}))
	}()
	world.NextOf(t, events, api.EventExecStarted)
	for _, other := range []string{"78", `"77"`} { // of no call
		b.send(t, "POST",
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, other))
	}
	if a := b.run(t, "pgrep -c sleep"); !strings.Contains(a, `1\n[exit code 0`) {
		t.Errorf("%s", a)
	}
	b.send(t, "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
	<-done
	if a := b.run(t, "pgrep -c sleep"); !strings.Contains(a, `0\n[exit code 1`) {
		t.Errorf("%s", a)
	}
	b.send(t, "DELETE", "")
}
