package agent_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestExplained: the result of the very call says what was refused, also where the command has ended well and there is
// no network at all: names, addresses, system calls. Behind the third refusal it has what the policy says, once. What
// programs do as well without is listed on request only, and a command that was refused nothing is told nothing.
func TestExplained(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.Needs(t, "python3", "unshare")
	w := world.New(t)
	c := w.Connect(t)
	id := world.Box(t, c)
	connect := func(address string) string {
		return `python3 -c 'import socket; socket.create_connection(` + address + `)' 2>/dev/null; true`
	}
	call := func(command string) string {
		t.Helper()
		r, err := c.CallTool(t.Context(), api.ToolCallParams{Sandbox: id, Name: api.ToolNameRunCommand,
			Arguments: []byte(`{"command": "` + strings.ReplaceAll(command, `"`, `\"`) + `"}`)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.IsError || len(r.Content) != 1 {
			t.Fatalf("%+v", r)
		}
		return r.Content[0].Text
	}
	const again = "refused again and again, by this policy: There is no network"
	for i, want := range []bool{false, false, true, false} {
		text := call(connect(`("web.test", 80)`))
		if !strings.Contains(text, "the sandbox refused net web.test: the sandbox has no network; to allow it: --allow web.test") ||
			!strings.Contains(text, "[exit code 0") || strings.Contains(text, again) != want {
			t.Errorf("call %d: %s", i+1, text)
		}
	}
	if text := call(connect(`("192.0.2.1", 80)`)); !strings.Contains(text, "the sandbox refused net ") ||
		!strings.Contains(text, "--allow-cidr") {
		t.Errorf("an address: %s", text)
	}
	if text := call("unshare --mount true; true"); !strings.Contains(text,
		"the sandbox refused syscall unshare: turn the agent's own sandbox off, hutch is the isolation") {
		t.Errorf("a namespace: %s", text)
	}
	for what, command := range map[string]string{
		"a probe": connect(`("update.googleapis.com", 443)`),
		"nothing": `python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname())'`,
	} {
		if text := call(command); strings.Contains(text, "refused") {
			t.Errorf("%s: %s", what, text)
		}
	}
	if out := w.OK(t, "why", id); strings.Contains(out, "googleapis") || !strings.Contains(out, "--verbose") {
		t.Errorf("%s", out)
	}
	if out := w.OK(t, "why", "--verbose", id); !strings.Contains(out, "update.googleapis.com") ||
		!strings.Contains(out, "web.test") {
		t.Errorf("%s", out)
	}
}

// TestExplainedExec: the same by hutch exec and hutch run, in one line behind a command that has ended well.
func TestExplainedExec(t *testing.T) {
	t.Parallel()
	world.Needs(t, "unshare")
	w := world.New(t)
	id := strings.TrimSpace(w.OK(t, "create", "host"))
	const said = "hutch: system call: unshare was refused: turn the agent's own sandbox off, hutch is the isolation"
	for _, c := range []struct {
		args  []string
		want  string
		lines int
	}{
		{[]string{"exec", id, "sh", "-c", "unshare --mount true 2>/dev/null; true"}, said, 1},
		{[]string{"run", "--", "sh", "-c", "unshare --mount true 2>/dev/null; true"}, said, 1},
		{[]string{"exec", id, "sh", "-c", "getent hosts a.test; getent hosts b.test; true"}, "1 more: hutch why", 1},
		{[]string{"exec", id, "sh", "-c", "getent hosts localhost >/dev/null"}, "", 0},
		{[]string{"run", "--", "true"}, "", 0},
	} {
		r := w.Run(t, c.args...)
		if r.Code != 0 || !strings.Contains(r.Stderr, c.want) || strings.Count(r.Stderr, "\n") != c.lines {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	w.OK(t, "rm", "-f", id)
}
