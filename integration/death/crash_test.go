package death_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// The tests of this file kill parts of the product. They do not run in parallel
// with others, so that what is left has one possible origin.

// TestSignals: signals go to the command, hutch ends as the command does, and
// nothing is left.
func TestSignals(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	tests := []struct {
		name, script string
		signals      []os.Signal
		code         int
	}{
		{"SIGTERM", "echo ready; exec sleep infinity", []os.Signal{unix.SIGTERM}, 143},
		{"SIGINT", "echo ready; exec sleep infinity", []os.Signal{unix.SIGINT}, 130},
		{"SIGHUP", "echo ready; exec sleep infinity", []os.Signal{unix.SIGHUP}, 129},
		{"SIGQUIT", "echo ready; exec sleep infinity", []os.Signal{unix.SIGQUIT}, 131},
		{"caught", "trap 'exit 7' TERM; echo ready; while :; do sleep infinity & wait; done",
			[]os.Signal{unix.SIGTERM}, 7},
		{"tree", world.Busy, []os.Signal{unix.SIGTERM}, 143},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := w.Start(t, "run", "host", "--", "sh", "-c", tt.script)
			for _, sig := range tt.signals {
				c.Signal(t, sig)
			}
			if code := c.End(t); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			w.AwaitNoSandbox(t)
		})
	}
}

// TestNohup: a signal that hutch was told to ignore is not for the command either.
func TestNohup(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	world.Needs(t, "nohup")
	c := w.StartProgram(t, "nohup", filepath.Join(w.Bin, "hutch"), "run", "host", "--", "sh", "-c",
		"echo ready; read x; echo got $x")
	c.Signal(t, unix.SIGHUP)
	if _, err := io.WriteString(c.Stdin, "input\n"); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "got input")
	if code := c.End(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSecondInterrupt: a command that ignores Ctrl-C does not keep the user.
func TestSecondInterrupt(t *testing.T) {
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Start(t, "run", "host", "--", "python3", "-uc", `
import signal
def caught(*a): print("caught")
signal.signal(signal.SIGINT, caught)
print("ready")
while True: signal.pause()`)
	c.Signal(t, unix.SIGINT)
	c.Await(t, "caught")
	c.Signal(t, unix.SIGINT)
	if code := c.End(t); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	w.AwaitNoSandbox(t)
}

// TestSignalEarly: a signal before the command runs ends the call just as well,
// at whatever moment of create it comes.
func TestSignalEarly(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	w.Inside(t, "true")
	for i := range world.Rounds(30) {
		c := w.Launch(t, "run", "host", "--", "sleep", "infinity")
		testenv.RandomMoment(world.RunTime)
		c.Signal(t, []os.Signal{unix.SIGINT, unix.SIGTERM}[i%2])
		if code := c.End(t); code != 130 && code != 143 {
			t.Fatalf("round %d: exit code %d, want 130 or 143", i, code)
		}
	}
	w.AwaitNoSandbox(t)
	w.Inside(t, "true")
}

// TestKillClient: the sandbox of a client that was killed ends, whatever runs in
// it, and the daemon goes on.
func TestKillClient(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	w.Inside(t, "true")
	daemon := w.Daemon(t).Monitor
	t.Run("running", func(t *testing.T) {
		for range world.Rounds(10) {
			c := w.Start(t, "run", "host", "--", "sh", "-c", world.Busy)
			world.Kill(t, c.Process.Pid)
			c.End(t)
			w.AwaitNoSandbox(t)
		}
	})
	t.Run("anytime", func(t *testing.T) {
		for range world.Rounds(40) {
			c := w.Launch(t, "run", "host", "--", "sh", "-c", world.Busy)
			testenv.RandomMoment(world.RunTime)
			world.Kill(t, c.Process.Pid)
			c.End(t)
		}
		w.AwaitNoSandbox(t)
	})
	w.Inside(t, "true")
	if now := w.Daemon(t).Monitor; now != daemon {
		t.Errorf("daemon %d was replaced by %d", daemon, now)
	}
}

// TestKillLauncher kills hutch-launch, which keeps the sandboxes: its clients hear that
// they are lost, every process ends, and the next daemon starts and sweeps the rest.
func TestKillLauncher(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	for i := range world.Rounds(10) {
		sb := strings.TrimSpace(w.Create(t, "host"))
		ex := strings.TrimSpace(w.OK(t, "exec", "-d", sb, "--", "sh", "-c", world.Busy))
		conn := w.Dial(t)
		wait := conn.Start("exec.wait", world.Params{"exec": ex})
		conn.Call(nil, "system.info", nil) // a connection's calls are begun in turn
		c := w.Start(t, "run", "host", "--", "sh", "-c", world.Busy)
		killed := w.Daemon(t)
		early := w.Launch(t, "run", "host", "--", "true")
		testenv.RandomMoment(world.RunTime)
		world.Kill(t, killed.Launch)
		if code := c.End(t); code != 125 && code != 137 {
			t.Errorf("round %d: a client of the killed daemon ended with %d", i, code)
		}
		m := wait.Wait()
		if res := (world.ExecResult{}); m.Error != nil || json.Unmarshal(m.Result, &res) != nil ||
			res.Verdict != string(api.VerdictLost) {
			t.Errorf("round %d: exec.wait says %s %v, want the verdict %s", i, m.Result, m.Error, api.VerdictLost)
		}
		conn.Close()
		// This one was early enough to be done, or late enough for a new daemon.
		if code := early.End(t); code != 0 && code != 125 && code != 137 {
			t.Errorf("round %d: a client that was just starting ended with %d", i, code)
		}
		for _, pid := range append(killed.Sandboxes, killed.Hutchd, killed.Launch, killed.Monitor) {
			if !world.Ended(pid, world.Patience) {
				t.Fatalf("round %d: process %d of %+v is left", i, pid, killed)
			}
		}
		if i%2 == 0 {
			w.OK(t, "gc")
		} else {
			w.Inside(t, "true")
		}
		if left := deadCgroups(w); len(left) > 0 {
			t.Fatalf("round %d: the next daemon did not sweep %v", i, left)
		}
		w.AwaitNoSandbox(t)
		w.Shutdown()
		for _, p := range w.WaitGone(time.Now().Add(world.Patience)) {
			t.Fatalf("round %d: %d %q does not end", i, p.PID, p.Args)
		}
	}
}

// deadCgroups are the cgroups of daemons of this world but the running one.
func deadCgroups(w *world.World) []string {
	var dead []string
trees:
	for _, tree := range w.LeftCgroups() {
		for _, d := range w.Daemons() {
			if strings.Contains(tree, fmt.Sprintf("-%d-", d.Monitor)) {
				continue trees
			}
		}
		dead = append(dead, tree)
	}
	return dead
}
