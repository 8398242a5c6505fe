package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// counter writes the numbers up to n, a line each, and ends with 7.
func counter(n int) string {
	return fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done; exit 7", n)
}

// counted is what counter writes.
func counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// victims are the parts of a daemon whose death its sandboxes survive.
var victims = []struct {
	name string
	pids func(parts) []int
}{
	{"hutchd", func(p parts) []int { return []int{p.hutchd} }},
	{"monitor", func(p parts) []int { return []int{p.monitor} }},
	{"both", func(p parts) []int { return []int{p.hutchd, p.monitor} }},
}

// TestDaemonDeath kills parts of the daemon at random moments of running commands: these
// go on, and not one byte of their output, nor their status, is lost or doubled.
func TestDaemonDeath(t *testing.T) {
	w := newWorld(t)
	w.logOnFailure(t)
	sb := strings.TrimSpace(w.create(t, "host"))
	const n = 20000
	want := counted(n)
	for i := range rounds(60) {
		victim := victims[i%len(victims)]
		ex := strings.TrimSpace(w.ok(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
		d := w.daemon(t)
		after(i)
		strike(t, victim.pids(d))
		res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex)))
		if res.ExitCode != 7 || res.Verdict != api.VerdictNonzero {
			t.Fatalf("round %d, %s: exit code %d, verdict %s; want 7, nonzero", i, victim.name, res.ExitCode, res.Verdict)
		}
		if res.Stdout != want {
			t.Fatalf("round %d, %s: %d bytes of output, want %d that are the same", i, victim.name, len(res.Stdout), len(want))
		}
		if got := w.ok(t, "exec", sb, "--", "echo", "still here"); got != "still here\n" {
			t.Fatalf("round %d, %s: the next command says %q", i, victim.name, got)
		}
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDaemonDeathClient: a client that waits for its command goes on with the next
// daemon, and its sandbox is not taken for one that nobody wants any more.
func TestDaemonDeathClient(t *testing.T) {
	w := newWorld(t)
	w.logOnFailure(t)
	for i := range rounds(12) {
		victim := victims[i%len(victims)]
		c := w.start(t, "run", "host", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 5")
		for _, pid := range victim.pids(w.daemon(t)) {
			kill(t, pid)
		}
		if _, err := c.stdin.Write([]byte("word\n")); err != nil {
			t.Fatal(err)
		}
		c.await(t, "got word")
		if code := c.end(t); code != 5 {
			t.Errorf("round %d, %s: exit code %d, want 5: %s", i, victim.name, code, &c.errs)
		}
		if c.errs.Len() > 0 {
			t.Errorf("round %d, %s: hutch says %s", i, victim.name, &c.errs)
		}
		// hutchd, which goes with its monitor, may have been able to say how the command ended, and not to remove the sandbox behind
		// that: the next one does, which somebody must start.
		w.ok(t, "ps")
		w.awaitNoSandbox(t)
	}
}

// TestDaemonDeathOwner: a sandbox whose owner is killed while there is no daemon ends.
func TestDaemonDeathOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(t, "run", "host", "--", "sh", "-c", busy)
	d := w.daemon(t)
	kill(t, c.Process.Pid)
	kill(t, d.hutchd)
	kill(t, d.monitor)
	w.ok(t, "ps")
	w.awaitNoSandbox(t)
	c.end(t) // what ran inside has held its output open
}

// TestDaemonDeathNothing: a daemon that is killed when it has no sandbox ends whole, and the next one, which may start before the last
// of its processes is gone, removes what they were in.
func TestDaemonDeathNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range rounds(12) {
		w.ok(t, "ps")
		d := w.daemon(t)
		kill(t, d.hutchd)
		kill(t, d.monitor)
		w.ok(t, "ps")
		w.shutdown()
		for _, what := range w.left(patience) {
			t.Fatalf("round %d left: %s", i, what)
		}
	}
}

// TestDaemonDeathNoReturn: sandboxes that nobody can come back to, because the state folder
// was removed, end.
func TestDaemonDeathNoReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok(t, "exec", "-d", strings.TrimSpace(w.create(t, "host")), "--", "sh", "-c", busy)
	d := w.daemon(t)
	kill(t, d.monitor)
	sockets, err := filepath.Glob(filepath.Join(w.root(), "launch-*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(d.sandboxes, d.hutchd, d.launch) {
		if !ended(pid, patience) {
			t.Errorf("process %d does not end", pid)
		}
	}
	w.ok(t, "gc")
}

// TestStopKeep restarts the daemon as an upgrade does.
func TestStopKeep(t *testing.T) {
	w := newWorld(t)
	sb := strings.TrimSpace(w.create(t, "--name", "box", "host"))
	w.create(t, "--name", "dead", "host")
	w.ok(t, "kill", "dead")
	ex := strings.TrimSpace(w.ok(t, "exec", "-d", sb, "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.01; done; exit 3"))
	for range 3 {
		d := w.daemon(t)
		w.ok(t, "rpc", "system.shutdown", `{"mode":"keep"}`)
		if !ended(d.monitor, patience) || !ended(d.hutchd, patience) {
			t.Fatal("the daemon does not end")
		}
		if ended(d.launch, 0) {
			t.Fatal("hutch-launch has ended")
		}
		list := decode[api.SandboxList](t, w.ok(t, "rpc", "sandbox.list", "{}"))
		if len(list.Sandboxes) != 2 || list.Sandboxes[0].Name != "box" || list.Sandboxes[0].State != api.Running ||
			list.Sandboxes[1].State != api.Stopped || list.Sandboxes[1].Reason != "killed" {
			t.Fatalf("after the restart there are %+v", list.Sandboxes)
		}
	}
	w.ok(t, "rm", "dead")
	w.ok(t, "exec", "box", "--", "touch", "/tmp/go")
	var res api.ExecResult
	if err := json.Unmarshal([]byte(w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex))), &res); err != nil || res.ExitCode != 3 {
		t.Errorf("exec.wait: %+v, %v; want exit code 3", res, err)
	}
	w.ok(t, "rm", "-f", "box")
}

// serve starts a daemon as a service manager does.
func (w *world) serve(t testing.TB, keep bool) *exec.Cmd {
	t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := w.program("hutchd", "serve", "--ready-fd", "3", "--on-stop", map[bool]string{true: "keep", false: "kill"}[keep])
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if line, err := bufio.NewReader(ready).ReadString('\n'); !strings.Contains(line, `"ready":true`) {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

// TestStopSignal: what SIGTERM does to the sandboxes is the service manager's choice.
func TestStopSignal(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			w := newWorld(t)
			serve := w.serve(t, keep)
			w.create(t, "--name", "box", "host")
			d := w.daemon(t)
			if err := serve.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := await(t, serve); code != 0 {
				t.Errorf("hutchd serve ended with %d", code)
			}
			if gone := ended(d.launch, 0); gone == keep {
				t.Errorf("hutch-launch has ended: %v", gone)
			}
			if keep {
				w.ok(t, "exec", "box", "--", "true")
				w.ok(t, "rm", "-f", "box")
			} else {
				w.run(t, "exec", "box", "--", "true").want(t, 125)
			}
		})
	}
}

// TestStopStuck: a hutchd that does not react ends with the daemon all the same, within
// the time that it is given, and its sandboxes are what the service manager wants of them.
func TestStopStuck(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tolerated = append(w.tolerated, "hutchd did not stop in time")
			serve := w.serve(t, keep)
			w.create(t, "--name", "box", "host")
			d := w.daemon(t)
			if err := unix.Kill(d.hutchd, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := serve.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			const given = 30 * time.Second // runtime/monitor, stopTimeout
			if !ended(d.monitor, given+patience) {
				kill(t, d.hutchd)
				t.Error("the daemon does not end")
			}
			_ = serve.Wait()
			if !ended(d.hutchd, patience) {
				t.Error("hutchd lives on")
			}
			if gone := ended(d.launch, 0); gone == keep {
				t.Errorf("hutch-launch has ended: %v", gone)
			}
			if keep {
				w.ok(t, "exec", "box", "--", "true")
				w.ok(t, "rm", "-f", "box")
			}
			w.ok(t, "gc") // a hutchd that is killed removes nothing
		})
	}
}
