package exec_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

const leave = "\x10\x11" // ctrl-p ctrl-q

// runningExec is the exec of a sandbox that runs.
func runningExec(t testing.TB, w *world.World, sandbox string) api.Exec {
	t.Helper()
	list, err := w.Connect(t).ListExecs(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.State == api.ExecRunning {
			return e
		}
	}
	t.Fatalf("nothing runs: %+v", list)
	return api.Exec{}
}

// TestDetach: a terminal is left and found again, with the command in it.
func TestDetach(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t)
	p, cmd := w.Terminal(t, "exec", "-it", sb, "sh", "-c", "PS1='$ ' exec sh")
	p.Sees("$ ")
	p.Write("x=from''before; echo $x\n")
	p.Sees("frombefore\r\n")
	p.Write("echo a\x10b | od -c\n") // one of the keys alone is passed on: sh's line editor takes none
	p.Sees("020")
	p.Write(leave)
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	exec := runningExec(t, w, sb)
	if !exec.TTY || !strings.Contains(p.Rest(), "hutch exec --attach "+exec.Exec) {
		t.Errorf("%+v, the terminal showed %q", exec, p.Rest())
	}
	c := w.Connect(t)
	typed := func(keys string) {
		t.Helper()
		if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec.Exec, Data: keys}); err != nil {
			t.Fatal(err)
		}
	}
	typed("echo mean''while\n")
	read, err := c.ExecRead(t.Context(), api.ReadParams{Exec: exec.Exec, Stream: api.Stdout, Limit: 1 << 20})
	for end := time.Now().Add(world.Patience); err == nil && !strings.Contains(read.Data, "meanwhile\r\n"); {
		if time.Now().After(end) {
			testenv.Late(t, "kept: %q", read.Data)
		}
		read, err = c.ExecRead(t.Context(), api.ReadParams{Exec: exec.Exec, Stream: api.Stdout, Limit: 1 << 20,
			WaitS: 1})
	}
	if err != nil || !strings.Contains(read.Data, "frombefore\r\n") || !strings.Contains(read.Data, "meanwhile\r\n") {
		t.Errorf("kept: %q %v", read.Data, err)
	}

	for _, end := range []string{leave, "exit 7\n"} {
		p, cmd = w.Terminal(t, "exec", "--attach", exec.Exec)
		p.Sees("meanwhile\r\n") // as it was left
		p.Resize(33, 99)
		p.Write("echo still $x; until stty size | grep 99; do sleep 0.1; done\n") // it comes a little later
		p.Sees("still frombefore\r\n")
		p.Sees("33 99\r\n")
		p.Write(end)
		want := map[string]int{leave: 0, "exit 7\n": 7}[end]
		if code := world.Await(t, cmd); code != want {
			t.Errorf("exit code %d, want %d: %q", code, want, p.Rest())
		}
	}
	p, cmd = w.Terminal(t, "exec", "--attach", exec.Exec) // after its end
	if code := world.Await(t, cmd); code != 7 || !strings.Contains(p.Rest(), "exit 7") {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDetachDeath: whoever is killed in front of a terminal leaves it.
func TestDetachDeath(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t)
	started, err := w.Connect(t).
		Subscribe(t.Context(), api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventExecStarted}})
	if err != nil {
		t.Fatal(err)
	}
	p, cmd := w.Terminal(t, "exec", "-it", sb, "sh", "-c", "echo rea''dy; read x; echo got $x; exit 4")
	p.Sees("ready\r\n")
	world.NextOf(t, started, api.EventExecStarted) // what it wrote can be here before hutchd knows that it runs
	world.Kill(t, cmd.Process.Pid)
	world.Await(t, cmd)
	p, cmd = w.Terminal(t, "exec", "--attach", runningExec(t, w, sb).Exec)
	p.Sees("ready\r\n")
	p.Write("this\n")
	if code := world.Await(t, cmd); code != 4 || !strings.Contains(p.Rest(), "got this\r\n") {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDetachRun: a sandbox of hutch run is left only where it is kept.
func TestDetachRun(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	p, cmd := w.Terminal(t, "run", "-it", "host", "--", "sh", "-c", "echo rea''dy; read x; exit $x")
	p.Sees("ready\r\n")
	p.Write(leave)
	p.Sees("not detached")
	p.Write("5\n")
	if code := world.Await(t, cmd); code != 5 {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	w.AwaitNoSandbox(t)

	p, cmd = w.Terminal(t, "run", "-it", "--keep", "--name", "kept", "host", "--", "sh", "-c",
		"echo rea''dy; read x; exit $x")
	p.Sees("ready\r\n")
	p.Write(leave)
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	p, cmd = w.Terminal(t, "exec", "--attach", runningExec(t, w, "kept").Exec)
	p.Write("6\n")
	if code := world.Await(t, cmd); code != 6 {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}

	p, cmd = w.Terminal(t, "exec", "-it", "--detach-keys", "", "kept", "sh", "-c",
		"stty raw -echo; echo rea''dy; head -c 2 | od -An -c")
	p.Sees("ready")
	p.Write(leave)
	if code := world.Await(t, cmd); code != 0 || !strings.Contains(p.Rest(), "020 021") {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	p, cmd = w.Terminal(t, "exec", "-it", "--detach-keys", "ctrl-a,d", "kept", "sh", "-c", "echo rea''dy; read x")
	p.Sees("ready")
	p.Write("\x01d")
	if code := world.Await(t, cmd); code != 0 || !strings.Contains(p.Rest(), "detached") {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	w.Run(t, "exec", "-it", "--detach-keys", "ctrl-!", "kept", "true").Want(t, 125).Says(t, "no key")
	p, cmd = w.Terminal(t, "exec", "-it", "--detach-keys", "ctrl-!", "kept", "true")
	if code := world.Await(t, cmd); code != 125 || !strings.Contains(p.Rest(), "no key") {
		t.Errorf("exit code %d: %q", code, p.Rest())
	}
	c := w.Connect(t)
	w.Run(t, "exec", "--attach", world.StartIn(t, c, "kept", "true")).Want(t, 125).Says(t, "no terminal")
	w.Run(t, "exec", "--attach", "ex_nosuch").Want(t, 125).Says(t, "no exec")
	for _, name := range []string{"no-such-command", "/etc/passwd"} {
		p, cmd := w.Terminal(t, "exec", "-it", "kept", name)
		if code := world.Await(t, cmd); code != map[string]int{"no-such-command": 127, "/etc/passwd": 126}[name] {
			t.Errorf("%s: exit code %d: %q", name, code, p.Rest())
		}
	}
	w.OK(t, "rm", "-f", "kept")
}

// TestDetachFlood: a terminal waits for whoever looks at it, loses nothing, and waits for
// nobody when it is left.
func TestDetachFlood(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t)
	p, cmd := w.Terminal(t, "exec", "-it", sb, "--", "seq", "200000")
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var want bytes.Buffer
	for i := range 200000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	if got := p.Rest(); got != want.String() {
		t.Errorf("%d bytes, want %d; it ends with %q", len(got), want.Len(), world.Abridged(got))
	}

	q := world.OpenPTY(t) // nobody reads this one
	w.OK(t, "exec", sb, "--", "mkfifo", "/tmp/tell")
	cmd = w.Command("exec", "-it", sb, "--", "sh", "-c", "seq 500000; touch /tmp/through; echo >/tmp/tell; sleep 1000")
	q.Give(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	q.Slave.Close()
	// One that begins later, and that somebody reads, gets through meanwhile.
	p, read := w.Terminal(t, "exec", "-it", sb, "--", "seq", "500000")
	if code := world.Await(t, read); code != 0 || !strings.HasSuffix(p.Rest(), "\r\n500000\r\n") {
		t.Errorf("exit code %d after %d bytes", code, len(p.Rest()))
	}
	if got := w.OK(t, "exec", sb, "--", "sh", "-c", "test -e /tmp/through && echo yes || echo no"); got != "no\n" {
		t.Error("the command did not wait for its caller")
	}
	q.Write(leave)
	q.Started()
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// when the command waits for a caller that has left, this does not end
	w.OK(t, "exec", sb, "--", "cat", "/tmp/tell")
	if _, err := w.Connect(t).ExecKill(t.Context(), runningExec(t, w, sb).Exec); err != nil {
		t.Error(err)
	}
	w.OK(t, "rm", "-f", sb)
}
