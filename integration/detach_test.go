package integration_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

const leave = "\x10\x11" // ctrl-p ctrl-q

// runningExec is the exec of a sandbox that runs.
func (w *world) runningExec(t testing.TB, sandbox string) api.Exec {
	t.Helper()
	list, err := w.connect(t).ListExecs(t.Context(), sandbox)
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
	w := newWorld(t)
	sb := w.create(t)
	p, cmd := w.terminal(t, "exec", "-it", sb, "sh", "-c", "PS1='$ ' exec sh")
	p.sees("$ ")
	p.write("x=from''before; echo $x\n")
	p.sees("frombefore\r\n")
	p.write("echo a\x10b | od -c\n") // one of the keys alone is passed on: sh's line editor takes none
	p.sees("020")
	p.write(leave)
	if code := await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	exec := w.runningExec(t, sb)
	if !exec.TTY || !strings.Contains(p.rest(), "hutch exec --attach "+exec.Exec) {
		t.Errorf("%+v, the terminal showed %q", exec, p.rest())
	}
	c := w.connect(t)
	typed := func(keys string) {
		t.Helper()
		if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec.Exec, Data: keys}); err != nil {
			t.Fatal(err)
		}
	}
	typed("echo mean''while\n")
	read, err := c.ExecRead(t.Context(), api.ReadParams{Exec: exec.Exec, Stream: api.Stdout, Limit: 1 << 20})
	for end := time.Now().Add(patience); err == nil && !strings.Contains(read.Data, "meanwhile\r\n") && time.Now().Before(end); {
		read, err = c.ExecRead(t.Context(), api.ReadParams{Exec: exec.Exec, Stream: api.Stdout, Limit: 1 << 20, WaitS: 1})
	}
	if err != nil || !strings.Contains(read.Data, "frombefore\r\n") || !strings.Contains(read.Data, "meanwhile\r\n") {
		t.Errorf("kept: %q %v", read.Data, err)
	}

	for _, end := range []string{leave, "exit 7\n"} {
		p, cmd = w.terminal(t, "exec", "--attach", exec.Exec)
		p.sees("meanwhile\r\n") // as it was left
		p.resize(33, 99)
		p.write("echo still $x; until stty size | grep 99; do sleep 0.1; done\n") // it comes a little later
		p.sees("still frombefore\r\n")
		p.sees("33 99\r\n")
		p.write(end)
		want := map[string]int{leave: 0, "exit 7\n": 7}[end]
		if code := await(t, cmd); code != want {
			t.Errorf("exit code %d, want %d: %q", code, want, p.rest())
		}
	}
	p, cmd = w.terminal(t, "exec", "--attach", exec.Exec) // after its end
	if code := await(t, cmd); code != 7 || !strings.Contains(p.rest(), "exit 7") {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDetachDeath: whoever is killed in front of a terminal leaves it.
func TestDetachDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sb := w.create(t)
	started, err := w.connect(t).Subscribe(t.Context(), api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventExecStarted}})
	if err != nil {
		t.Fatal(err)
	}
	p, cmd := w.terminal(t, "exec", "-it", sb, "sh", "-c", "echo rea''dy; read x; echo got $x; exit 4")
	p.sees("ready\r\n")
	nextOf(t, started, api.EventExecStarted) // what it wrote can be here before hutchd knows that it runs
	kill(t, cmd.Process.Pid)
	await(t, cmd)
	p, cmd = w.terminal(t, "exec", "--attach", w.runningExec(t, sb).Exec)
	p.sees("ready\r\n")
	p.write("this\n")
	if code := await(t, cmd); code != 4 || !strings.Contains(p.rest(), "got this\r\n") {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDetachRun: a sandbox of hutch run is left only where it is kept.
func TestDetachRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, cmd := w.terminal(t, "run", "-it", "host", "--", "sh", "-c", "echo rea''dy; read x; exit $x")
	p.sees("ready\r\n")
	p.write(leave)
	p.sees("not detached")
	p.write("5\n")
	if code := await(t, cmd); code != 5 {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	w.awaitNoSandbox(t)

	p, cmd = w.terminal(t, "run", "-it", "--keep", "--name", "kept", "host", "--", "sh", "-c", "echo rea''dy; read x; exit $x")
	p.sees("ready\r\n")
	p.write(leave)
	if code := await(t, cmd); code != 0 {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	p, cmd = w.terminal(t, "exec", "--attach", w.runningExec(t, "kept").Exec)
	p.write("6\n")
	if code := await(t, cmd); code != 6 {
		t.Errorf("exit code %d: %q", code, p.rest())
	}

	p, cmd = w.terminal(t, "exec", "-it", "--detach-keys", "", "kept", "sh", "-c", "stty raw -echo; echo rea''dy; head -c 2 | od -An -c")
	p.sees("ready")
	p.write(leave)
	if code := await(t, cmd); code != 0 || !strings.Contains(p.rest(), "020 021") {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	p, cmd = w.terminal(t, "exec", "-it", "--detach-keys", "ctrl-a,d", "kept", "sh", "-c", "echo rea''dy; read x")
	p.sees("ready")
	p.write("\x01d")
	if code := await(t, cmd); code != 0 || !strings.Contains(p.rest(), "detached") {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	w.run(t, "exec", "-it", "--detach-keys", "ctrl-!", "kept", "true").want(t, 0) // no terminal: nothing to leave
	p, cmd = w.terminal(t, "exec", "-it", "--detach-keys", "ctrl-!", "kept", "true")
	if code := await(t, cmd); code != 125 || !strings.Contains(p.rest(), "no key") {
		t.Errorf("exit code %d: %q", code, p.rest())
	}
	c := w.connect(t)
	w.run(t, "exec", "--attach", startIn(t, c, "kept", "true")).want(t, 125).says(t, "no terminal")
	w.run(t, "exec", "--attach", "ex_nosuch").want(t, 125).says(t, "no exec")
	for _, name := range []string{"no-such-command", "/etc/passwd"} {
		p, cmd := w.terminal(t, "exec", "-it", "kept", name)
		if code := await(t, cmd); code != map[string]int{"no-such-command": 127, "/etc/passwd": 126}[name] {
			t.Errorf("%s: exit code %d: %q", name, code, p.rest())
		}
	}
	w.ok(t, "rm", "-f", "kept")
}

// TestDetachFlood: a terminal waits for whoever looks at it, loses nothing, and waits for
// nobody when it is left.
func TestDetachFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sb := w.create(t)
	p, cmd := w.terminal(t, "exec", "-it", sb, "--", "seq", "200000")
	if code := await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var want bytes.Buffer
	for i := range 200000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	if got := p.rest(); got != want.String() {
		t.Errorf("%d bytes, want %d; it ends with %q", len(got), want.Len(), abridged(got))
	}

	q := openPty(t) // nobody reads this one
	cmd = w.command("exec", "-it", sb, "--", "sh", "-c", "seq 2000000; touch /tmp/through; sleep 1000")
	q.give(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	q.slave.Close()
	through := "test -e /tmp/through && echo yes || echo no"
	<-time.After(500 * time.Millisecond) // far longer than seq takes
	if got := w.ok(t, "exec", sb, "--", "sh", "-c", through); got != "no\n" {
		t.Error("the command did not wait for its caller")
	}
	q.write(leave)
	q.started()
	if code := await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for end := time.Now().Add(patience); w.ok(t, "exec", sb, "--", "sh", "-c", through) != "yes\n"; {
		if time.Now().After(end) {
			t.Fatal("the command waits for a caller that has left")
		}
	}
	if _, err := w.connect(t).ExecKill(t.Context(), w.runningExec(t, sb).Exec); err != nil {
		t.Error(err)
	}
	w.ok(t, "rm", "-f", sb)
}
