package integration_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// The tests of this file kill parts of the product. They do not run in parallel
// with others, so that what is left has one possible origin.

// busy is a command whose process tree tries to get away: a daemonized child in
// a session of its own, and one that ignores every signal it can.
const busy = `
(setsid sh -c '(trap "" TERM INT HUP; echo away >/dev/null; exec sleep infinity) & exit 0')
trap "" HUP
echo ready
exec sleep infinity`

// client is a running `hutch run`.
type client struct {
	errs bytes.Buffer // standard error, once it has ended
	*exec.Cmd
	out   *bufio.Reader
	stdin io.WriteCloser
}

// start starts hutch and returns when the command inside has said "ready".
func (w *world) start(t testing.TB, args ...string) *client {
	t.Helper()
	return w.startProgram(t, filepath.Join(w.bin, "hutch"), args...)
}

func (w *world) startProgram(t testing.TB, name string, args ...string) *client {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = w.vars, w.dir
	c := spawn(t, cmd)
	c.await(t, "ready")
	return c
}

// launch starts hutch without waiting for anything.
func (w *world) launch(t testing.TB, args ...string) *client {
	t.Helper()
	return spawn(t, w.command(args...))
}

func spawn(t testing.TB, cmd *exec.Cmd) *client {
	t.Helper()
	c := &client{Cmd: cmd}
	cmd.Stderr = &c.errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	c.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// await reads lines up to one that says so.
func (c *client) await(t testing.TB, want string) {
	t.Helper()
	c.awaitLine(t, want, func(line string) bool { return strings.TrimSpace(line) == want })
}

// awaitPart reads lines up to one with want in it.
func (c *client) awaitPart(t testing.TB, want string) {
	t.Helper()
	c.awaitLine(t, want, func(line string) bool { return strings.Contains(line, want) })
}

// awaitLine gives up, but late: there are commands with minutes of work before a line.
func (c *client) awaitLine(t testing.TB, want string, found func(line string) bool) {
	t.Helper()
	late := time.AfterFunc(5*patience, func() { _ = c.Process.Kill() })
	defer late.Stop()
	last := ""
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			_ = c.Wait()
			t.Fatalf("%s: output ended before %q, with %q: %v: %s", strings.Join(c.Args, " "), want, last, err, &c.errs)
		}
		if found(line) {
			return
		}
		last = line
	}
}

// end waits for hutch's end; the rest of its output is dropped.
func (c *client) end(t testing.TB) int {
	t.Helper()
	late := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	_, _ = io.Copy(io.Discard, c.out)
	if !late.Stop() {
		t.Fatalf("%s does not end", strings.Join(c.Args, " "))
	}
	return await(t, c.Cmd)
}

func (c *client) signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// TestSignals: signals go to the command, hutch ends as the command does, and
// nothing is left.
func TestSignals(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name, script string
		signals      []os.Signal
		code         int
	}{
		{"SIGTERM", "echo ready; exec sleep infinity", []os.Signal{unix.SIGTERM}, 143},
		{"SIGINT", "echo ready; exec sleep infinity", []os.Signal{unix.SIGINT}, 130},
		{"SIGHUP", "echo ready; exec sleep infinity", []os.Signal{unix.SIGHUP}, 129},
		{"SIGQUIT", "echo ready; exec sleep infinity", []os.Signal{unix.SIGQUIT}, 131},
		{"caught", "trap 'exit 7' TERM; echo ready; while :; do sleep infinity & wait; done", []os.Signal{unix.SIGTERM}, 7},
		{"tree", busy, []os.Signal{unix.SIGTERM}, 143},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := w.start(t, "run", "host", "--", "sh", "-c", tt.script)
			for _, sig := range tt.signals {
				c.signal(t, sig)
			}
			if code := c.end(t); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			w.awaitNoSandbox(t)
		})
	}
}

// TestNohup: a signal that hutch was told to ignore is not for the command either.
func TestNohup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needs(t, "nohup")
	c := w.startProgram(t, "nohup", filepath.Join(w.bin, "hutch"), "run", "host", "--", "sh", "-c", "echo ready; read x; echo got $x")
	c.signal(t, unix.SIGHUP)
	if _, err := io.WriteString(c.stdin, "input\n"); err != nil {
		t.Fatal(err)
	}
	c.await(t, "got input")
	if code := c.end(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSecondInterrupt: a command that ignores Ctrl-C does not keep the user.
func TestSecondInterrupt(t *testing.T) {
	needsPython(t)
	w := newWorld(t)
	c := w.start(t, "run", "host", "--", "python3", "-uc", `
import signal
def caught(*a): print("caught")
signal.signal(signal.SIGINT, caught)
print("ready")
while True: signal.pause()`)
	c.signal(t, unix.SIGINT)
	c.await(t, "caught")
	c.signal(t, unix.SIGINT)
	if code := c.end(t); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	w.awaitNoSandbox(t)
}

// TestSignalEarly: a signal before the command runs ends the call just as well,
// at whatever moment of create it comes.
func TestSignalEarly(t *testing.T) {
	w := newWorld(t)
	w.inside(t, "true")
	for i := range rounds(30) {
		c := w.launch(t, "run", "host", "--", "sleep", "infinity")
		after(i)
		c.signal(t, []os.Signal{unix.SIGINT, unix.SIGTERM}[i%2])
		if code := c.end(t); code != 130 && code != 143 {
			t.Fatalf("round %d: exit code %d, want 130 or 143", i, code)
		}
	}
	w.awaitNoSandbox(t)
	w.inside(t, "true")
}

// rounds is fewer of them with -short.
func rounds(n int) int {
	if testing.Short() {
		return max(n/10, 2)
	}
	return n
}

// after lets a random part of the time that a run takes pass: the point is that
// nobody knows at which moment what follows comes.
func after(round int) {
	r := rand.New(rand.NewPCG(uint64(round), 1))
	<-time.After(time.Duration(r.IntN(80)) * time.Millisecond)
}

// TestKillClient: the sandbox of a client that was killed ends, whatever runs in
// it, and the daemon goes on.
func TestKillClient(t *testing.T) {
	w := newWorld(t)
	w.inside(t, "true")
	daemon := w.daemon(t).monitor
	t.Run("running", func(t *testing.T) {
		for range rounds(10) {
			c := w.start(t, "run", "host", "--", "sh", "-c", busy)
			kill(t, c.Process.Pid)
			c.end(t)
			w.awaitNoSandbox(t)
		}
	})
	t.Run("anytime", func(t *testing.T) {
		for i := range rounds(40) {
			c := w.launch(t, "run", "host", "--", "sh", "-c", busy)
			after(i)
			kill(t, c.Process.Pid)
			c.end(t)
		}
		w.awaitNoSandbox(t)
	})
	w.inside(t, "true")
	if now := w.daemon(t).monitor; now != daemon {
		t.Errorf("daemon %d was replaced by %d", daemon, now)
	}
}

// TestKillLauncher kills hutch-launch, which keeps the sandboxes: its clients hear that
// they are lost, every process ends, and the next daemon starts and sweeps the rest.
func TestKillLauncher(t *testing.T) {
	w := newWorld(t)
	for i := range rounds(10) {
		sb := strings.TrimSpace(w.create(t, "host"))
		ex := strings.TrimSpace(w.ok(t, "exec", "-d", sb, "--", "sh", "-c", busy))
		conn := w.dial(t)
		wait := conn.start("exec.wait", params{"exec": ex})
		conn.call(nil, "system.info", nil) // a connection's calls are begun in turn
		c := w.start(t, "run", "host", "--", "sh", "-c", busy)
		killed := w.daemon(t)
		early := w.launch(t, "run", "host", "--", "true")
		after(i)
		kill(t, killed.launch)
		if code := c.end(t); code != 125 && code != 137 {
			t.Errorf("round %d: a client of the killed daemon ended with %d", i, code)
		}
		m := wait.wait()
		if res := (execResult{}); m.Error != nil || json.Unmarshal(m.Result, &res) != nil || res.Verdict != string(api.VerdictLost) {
			t.Errorf("round %d: exec.wait says %s %v, want the verdict %s", i, m.Result, m.Error, api.VerdictLost)
		}
		conn.close()
		// This one was early enough to be done, or late enough for a new daemon.
		if code := early.end(t); code != 0 && code != 125 && code != 137 {
			t.Errorf("round %d: a client that was just starting ended with %d", i, code)
		}
		for _, pid := range append(killed.sandboxes, killed.hutchd, killed.launch, killed.monitor) {
			if !ended(pid, patience) {
				t.Fatalf("round %d: process %d of %+v is left", i, pid, killed)
			}
		}
		if i%2 == 0 {
			w.ok(t, "gc")
		} else {
			w.inside(t, "true")
		}
		if left := w.deadCgroups(); len(left) > 0 {
			t.Fatalf("round %d: the next daemon did not sweep %v", i, left)
		}
		w.awaitNoSandbox(t)
		w.shutdown()
		for _, p := range w.waitGone(time.Now().Add(patience)) {
			t.Fatalf("round %d: %d %q does not end", i, p.pid, p.args)
		}
	}
}

// deadCgroups are the cgroups of daemons of this world but the running one.
func (w *world) deadCgroups() []string {
	var dead []string
trees:
	for _, tree := range w.leftCgroups() {
		for _, d := range w.daemons() {
			if strings.Contains(tree, fmt.Sprintf("-%d-", d.monitor)) {
				continue trees
			}
		}
		dead = append(dead, tree)
	}
	return dead
}
