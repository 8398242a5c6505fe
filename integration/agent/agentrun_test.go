package agent_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// scripted is an agent without a model: it does what its first argument says, in the workspace.
const scripted = `name: scripted
image: host
pass_env: [AGENT_KEY, AGENT_UNSET]
cmd: [sh, -c, 'eval "$1"', agent]
`

// work is what most of these agents do: they change a file, make one, and configure the user's own agent.
const work = "echo changed >>a.txt; echo new >b.txt; mkdir -p .claude; echo {} >.claude/settings.json; echo x >CLAUDE.md"

// project is a world with the template, and a folder.
func project(t *testing.T) (w *world.World, dir string) {
	t.Helper()
	w = world.New(t)
	dir = w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "a.txt"), "one\n")
	w.OK(t, "template", "create", "-f", world.Write(t, w.Path("scripted.yaml"), scripted))
	return w, dir
}

// agentIn is hutch agent, run in a folder.
func agentIn(w *world.World, dir string, args ...string) *exec.Cmd {
	cmd := w.Command(append([]string{"agent"}, args...)...)
	cmd.Dir = dir
	return cmd
}

// names are those in a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// untouched fails the test unless the folder is as project made it.
func untouched(t *testing.T, dir string) {
	t.Helper()
	if got := names(t, dir); got != "a.txt" || world.Read(t, filepath.Join(dir, "a.txt")) != "one\n" {
		t.Errorf("the folder has %s", got)
	}
}

// onlySandbox is the one that there is.
func onlySandbox(t *testing.T, w *world.World) string {
	t.Helper()
	id := strings.Fields(w.OK(t, "ps", "-aq"))
	if len(id) != 1 {
		t.Fatalf("sandboxes %v", id)
	}
	return id[0]
}

// TestAgent: without a terminal an agent works on a copy, and nothing is applied but by --apply: then what was shown,
// and nothing that the user's own programs take instructions from. What is left is kept, and said. It gets the
// variables that its template names, and no others.
func TestAgent(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Smoke(t)
	t.Parallel()
	w, dir := project(t)
	cmd := agentIn(w, dir, "scripted", "--", `echo "$AGENT_KEY,$AGENT_OTHER,$(cat /proc/1/cmdline)"; getent hosts api.test; `+work)
	cmd.Env = append(cmd.Env, "AGENT_KEY=a-key", "AGENT_OTHER=b-key")
	r := w.Finish(t, cmd)
	id := onlySandbox(t, w)
	if r.Code != 0 || !strings.HasPrefix(r.Stdout, "a-key,,") || strings.Contains(r.Stderr, "a-key") {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"by its template: AGENT_KEY\n", "ended after", "exit code 0",
		"refused: network: api.test", "to allow it next time: hutch agent --allow api.test scripted\n", "+changed",
		"nothing was applied: there is no terminal", "hutch workspace apply " + id} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("no %q in %s", want, r.Stderr)
		}
	}
	untouched(t, dir)
	if r := w.Run(t, "agent", "--attach", id, "--apply"); r.Code != 1 ||
		!strings.Contains(r.Stderr, "not applied: CLAUDE.md") || !strings.Contains(r.Stderr, "is kept") {
		t.Errorf("%+v", r)
	}
	if got := names(t, dir); got != "a.txt b.txt" || world.Read(t, filepath.Join(dir, "a.txt")) != "one\nchanged\n" {
		t.Errorf("applied: %s", got)
	}
	w.OK(t, "rm", "-f", id)

	for what, c := range map[string]struct {
		args []string
		code int
		kept bool
		says string
	}{
		"discarded":       {[]string{"--discard", "scripted", "--", work}, 0, false, "thrown away"},
		"failed":          {[]string{"--apply", "scripted", "--", "echo x >x; exit 3"}, 3, true, "exit code 0"},
		"nothing changed": {[]string{"scripted", "--", "exit 4"}, 4, false, "changed nothing"},
		"all applied": {[]string{"--apply", "--workspace", ".", "scripted", "--", "echo y >y"}, 0, false,
			"applied: 1 change"},
		"kept":        {[]string{"--keep", "scripted", "--", "true"}, 0, true, "kept sandbox"},
		"too long":    {[]string{"--timeout", "0.2", "scripted", "--", "exec sleep 1000"}, 124, false, "timeout"},
		"no program":  {[]string{"--workspace", ".:rw", "scripted"}, 125, false, "works on a copy"},
		"no template": {[]string{"unknown"}, 125, false, "template ls"},
		"two":         {[]string{"--apply", "--discard", "scripted"}, 125, false, "does not go with"},
	} {
		r := w.Finish(t, agentIn(w, dir, c.args...))
		left := w.OK(t, "ps", "-aq")
		if r.Code != c.code || !strings.Contains(r.Stderr, c.says) || (left != "") != c.kept {
			t.Errorf("%s: %+v, left %q", what, r, left)
		}
		if left != "" {
			w.OK(t, "rm", "-f", strings.TrimSpace(left))
		}
	}
	if got := names(t, dir); got != "a.txt b.txt y" {
		t.Errorf("the folder has %s", got)
	}
}

// TestAgentTerminal: at a terminal the agent has it, is left and found again, gets Ctrl-C, and what it has changed is
// shown and asked about.
func TestAgentTerminal(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w, dir := project(t)
	script := `trap 'echo interrupted' INT; echo be''gun; read x; ` + work + `; echo "read $x"; read x; true`
	terminal := func(args ...string) (*world.PTY, *exec.Cmd) {
		p := world.OpenPTY(t)
		p.Resize(24, 80)
		cmd := agentIn(w, dir, args...)
		p.Give(cmd)
		cmd.Env = append(cmd.Env, "HUTCH_PAGER=cat")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.Started()
		return p, cmd
	}
	p, cmd := terminal("scripted", "--", script)
	p.Sees("begun")
	p.Write("\x10\x11") // ctrl-p ctrl-q
	if code := world.Await(t, cmd); code != 0 || !strings.Contains(p.Rest(), "hutch agent --attach") {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	id := onlySandbox(t, w)
	p, cmd = terminal("--attach", id)
	p.Sees("begun")
	p.Write("word\n")
	p.Sees("read word")
	p.Write("\x03")
	p.Sees("interrupted")
	p.Write("\n")
	p.Sees("Apply this to your folder?")
	p.Write("\x03") // at the question it is an answer
	if code := world.Await(t, cmd); code != 0 || !strings.Contains(p.Rest(), "is kept") {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	untouched(t, dir)
	p, cmd = terminal("--attach", id)
	p.Sees("Apply this to your folder?")
	p.Write("what\n")
	p.Sees("choose files")
	p.Write("y\n")
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	if got := names(t, dir); got != "a.txt b.txt" || !strings.Contains(p.Rest(), "not applied: CLAUDE.md") {
		t.Errorf("%s, %s", got, p.Rest())
	}
	w.OK(t, "rm", "-f", id)
	p, cmd = terminal("scripted", "--", "trap 'echo ign''ored' INT; trap 'exit 9' TERM; echo go''es; while :; do read x; done")
	p.Sees("goes")
	p.Write("\x03")
	p.Sees("ignored")
	p.Write("\x03")
	if code := world.Await(t, cmd); code != 9 || !strings.Contains(p.Rest(), "changed nothing") {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	p, cmd = terminal("scripted", "--", "echo on >b.txt; echo be''gun; read x; exit 7")
	p.Sees("begun")
	world.Kill(t, cmd.Process.Pid)
	_ = world.Await(t, cmd)
	p, cmd = terminal("--attach", onlySandbox(t, w))
	p.Sees("begun")
	p.Write("\n")
	p.Sees("Apply this to your folder?")
	p.Write("discard\n")
	if code := world.Await(t, cmd); code != 7 || w.OK(t, "ps", "-aq") != "" {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	if got := world.Read(t, filepath.Join(dir, "b.txt")); got != "new\n" {
		t.Errorf("b.txt has %q", got)
	}
}

// TestAgentKilled: when hutch agent is killed the agent goes on in its sandbox, nothing is applied, and --attach comes
// back. Ctrl-C is the agent's, and a second one ends it; the changes are kept.
func TestAgentKilled(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w, dir := project(t)
	c := world.Spawn(t, agentIn(w, dir, "--apply", "scripted", "--",
		"echo one >b.txt; mkfifo go; echo ready; read x <go; echo two >>b.txt; rm go; echo over"))
	c.Await(t, "ready")
	c.Signal(t, unix.SIGKILL)
	_ = c.Wait()
	untouched(t, dir)
	id := onlySandbox(t, w)
	w.OK(t, "exec", id, "sh", "-c", "echo >/workspace/go")
	if r := w.Run(t, "agent", "--attach", id); r.Code != 0 || !strings.Contains(r.Stdout, "over\n") ||
		!strings.Contains(r.Stderr, "+two") {
		t.Errorf("%+v", r)
	}
	untouched(t, dir)
	w.OK(t, "rm", "-f", id)

	c = world.Spawn(t, agentIn(w, dir, "--apply", "scripted", "--",
		"trap 'echo asked' INT; echo x >b.txt; echo ready; while :; do sleep 1000 & wait; done"))
	c.Await(t, "ready")
	c.Signal(t, unix.SIGINT)
	c.Await(t, "asked")
	c.Signal(t, unix.SIGINT)
	if code := c.End(t); code != 130 || !strings.Contains(c.Errs.String(), "the changes are kept") {
		t.Errorf("exit code %d: %s", code, &c.Errs)
	}
	untouched(t, dir)
	id = onlySandbox(t, w)
	if out := w.OK(t, "workspace", "diff", "--names", id); !strings.Contains(out, "b.txt") {
		t.Errorf("%q", out)
	}
	if r := w.Run(t, "agent", "--attach", id, "--discard"); r.Code == 0 || w.OK(t, "ps", "-aq") != "" {
		t.Errorf("%+v", r)
	}
}

// TestAgentNotify: the end of a detached agent, and what it asks, is posted to the URL and shown on the desktop, with
// nothing in it that the sandbox could have the desktop do.
func TestAgentNotify(t *testing.T) {
	t.Parallel()
	world.Needs(t, "python3")
	w, dir := project(t)
	type notice struct {
		Event, Agent, Sandbox, Wants string
		Changes                      int
		ExitCode                     *int `json:"exit_code"`
	}
	got := make(chan notice, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notice
		if text, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(text, &n) != nil {
			t.Errorf("%s, %v", text, err)
		}
		got <- n
	}))
	defer server.Close()
	bin, shown := w.Sub(t, "bin"), w.Path("shown")
	if err := os.WriteFile(filepath.Join(bin, "notify-send"),
		[]byte("#!/bin/sh\nprintf '%s|' \"$@\" >>"+shown+"\necho >>"+shown+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := agentIn(w, dir, "--detach", "--notify", server.URL+"/token", "--ask", "scripted", "--",
		`getent hosts 'asked.test'; python3 -c 'import socket; socket.create_connection(("asked.test", 443))'; echo x >x; exit 5`)
	cmd.Env = append(cmd.Env, "DISPLAY=:9", "PATH="+bin+":"+os.Getenv("PATH"))
	r := w.Finish(t, cmd)
	id := onlySandbox(t, w)
	if r.Code != 0 || strings.TrimSpace(r.Stdout) != id {
		t.Fatalf("%+v", r)
	}
	n := testenv.Within(t, got, world.Patience, "no notice")
	for asked := 0; n.Event == "asks" || asked == 0; asked++ {
		if n.Event != "asks" || !strings.Contains(n.Wants, "asked.test") {
			t.Fatalf("%+v", n)
		}
		for _, line := range strings.Split(w.OK(t, "network", "asks"), "\n") {
			if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], "ask_") {
				w.OK(t, "network", "answer", f[0], "deny")
			}
		}
		n = testenv.Within(t, got, world.Patience, "no notice")
	}
	if n.Event != "ended" || n.Agent != "scripted" || n.Sandbox != id || n.Changes != 1 || n.ExitCode == nil ||
		*n.ExitCode != 5 {
		t.Errorf("%+v", n)
	}
	if text := world.Read(t, shown); !strings.Contains(text, "--app-name=hutch|--|hutch: agent scripted|ended after") {
		t.Errorf("%q", text)
	}
	untouched(t, dir)
	w.OK(t, "rm", "-f", id)
}
