package death_test

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

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
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

// TestDaemonDeath kills parts of the daemon at random moments of running commands: these
// go on, and not one byte of their output, nor their status, is lost or doubled.
func TestDaemonDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	w := world.New(t)
	w.LogOnFailure(t)
	sb := strings.TrimSpace(w.Create(t, "host"))
	const n = 20000
	want := counted(n)
	for i := range world.Rounds(60) {
		victim := world.Victims[i%len(world.Victims)]
		ex := strings.TrimSpace(w.OK(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
		d := w.Daemon(t)
		testenv.RandomMoment(world.RunTime)
		world.KillNow(t, victim.PIDs(d))
		res := world.Decode[api.ExecResult](t, w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex)))
		if res.ExitCode != 7 || res.Verdict != api.VerdictNonzero {
			t.Fatalf("round %d, %s: exit code %d, verdict %s; want 7, nonzero", i, victim.Name, res.ExitCode,
				res.Verdict)
		}
		if res.Stdout != want {
			t.Fatalf("round %d, %s: %d bytes of output, want %d that are the same", i, victim.Name, len(res.Stdout),
				len(want))
		}
		if got := w.OK(t, "exec", sb, "--", "echo", "still here"); got != "still here\n" {
			t.Fatalf("round %d, %s: the next command says %q", i, victim.Name, got)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathClient: a client that waits for its command goes on with the next
// daemon, and its sandbox is not taken for one that nobody wants any more.
func TestDaemonDeathClient(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	w.LogOnFailure(t)
	for i := range world.Rounds(12) {
		victim := world.Victims[i%len(world.Victims)]
		c := w.Start(t, "run", "host", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 5")
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		if _, err := c.Stdin.Write([]byte("word\n")); err != nil {
			t.Fatal(err)
		}
		c.Await(t, "got word")
		if code := c.End(t); code != 5 {
			t.Errorf("round %d, %s: exit code %d, want 5: %s", i, victim.Name, code, &c.Errs)
		}
		if c.Errs.Len() > 0 {
			t.Errorf("round %d, %s: hutch says %s", i, victim.Name, &c.Errs)
		}
		// hutchd, which goes with its monitor, may have been able to say how the command ended, and not to remove the
		// sandbox behind that: the next one does, which somebody must start.
		w.OK(t, "ps")
		w.AwaitNoSandbox(t)
	}
}

// TestDaemonDeathOwner: a sandbox whose owner is killed while there is no daemon ends.
func TestDaemonDeathOwner(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	w := world.New(t)
	c := w.Start(t, "run", "host", "--", "sh", "-c", world.Busy)
	d := w.Daemon(t)
	world.Kill(t, c.Process.Pid)
	world.Kill(t, d.Hutchd)
	world.Kill(t, d.Monitor)
	w.OK(t, "ps")
	w.AwaitNoSandbox(t)
	c.End(t) // what ran inside has held its output open
}

// TestDaemonDeathNothing: a daemon that is killed when it has no sandbox ends whole, and the next one, which may start
// before the last of its processes is gone, removes what they were in.
func TestDaemonDeathNothing(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	for i := range world.Rounds(12) {
		w.OK(t, "ps")
		d := w.Daemon(t)
		world.Kill(t, d.Hutchd)
		world.Kill(t, d.Monitor)
		w.OK(t, "ps")
		w.Shutdown()
		for _, what := range w.Left(world.Patience) {
			t.Fatalf("round %d left: %s", i, what)
		}
	}
}

// TestDaemonDeathNoReturn: sandboxes that nobody can come back to, because the state folder
// was removed, end.
func TestDaemonDeathNoReturn(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.OK(t, "exec", "-d", strings.TrimSpace(w.Create(t, "host")), "--", "sh", "-c", world.Busy)
	d := w.Daemon(t)
	world.Kill(t, d.Monitor)
	sockets, err := filepath.Glob(filepath.Join(w.Root(), "launch-*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(d.Sandboxes, d.Hutchd, d.Launch) {
		if !world.Ended(pid, world.Patience) {
			t.Errorf("process %d does not end", pid)
		}
	}
	w.OK(t, "gc")
}

// TestStopKeep restarts the daemon as an upgrade does.
func TestStopKeep(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	w := world.New(t)
	sb := strings.TrimSpace(w.Create(t, "--name", "box", "host"))
	w.Create(t, "--name", "dead", "host")
	w.OK(t, "kill", "dead")
	ex := strings.TrimSpace(w.OK(t, "exec", "-d", sb, "--", "sh", "-c",
		"until [ -e /tmp/go ]; do sleep 0.01; done; exit 3"))
	for range 3 {
		d := w.Daemon(t)
		w.OK(t, "rpc", "system.shutdown", `{"mode":"keep"}`)
		world.AwaitEnd(t, d.Monitor, "the monitor")
		world.AwaitEnd(t, d.Hutchd, "hutchd")
		if world.Ended(d.Launch, 0) {
			t.Fatal("hutch-launch has ended")
		}
		list := world.Decode[api.SandboxList](t, w.OK(t, "rpc", "sandbox.list", "{}"))
		if len(list.Sandboxes) != 2 || list.Sandboxes[0].Name != "box" || list.Sandboxes[0].State != api.Running ||
			list.Sandboxes[1].State != api.Stopped || list.Sandboxes[1].Reason != "killed" {
			t.Fatalf("after the restart there are %+v", list.Sandboxes)
		}
	}
	w.OK(t, "rm", "dead")
	w.OK(t, "exec", "box", "--", "touch", "/tmp/go")
	var res api.ExecResult
	if err := json.Unmarshal([]byte(w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex))), &res); err != nil ||
		res.ExitCode != 3 {
		t.Errorf("exec.wait: %+v, %v; want exit code 3", res, err)
	}
	w.OK(t, "rm", "-f", "box")
}

// serve starts a daemon as a service manager does.
func serve(t testing.TB, w *world.World, keep bool) *exec.Cmd {
	t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd := w.Program("hutchd", "serve", "--ready-fd", "3", "--on-stop",
		map[bool]string{true: "keep", false: "kill"}[keep])
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
	testenv.Axes(t, testenv.Privilege)
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			w := world.New(t)
			serve := serve(t, w, keep)
			w.Create(t, "--name", "box", "host")
			d := w.Daemon(t)
			if err := serve.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := world.Await(t, serve); code != 0 {
				t.Errorf("hutchd serve ended with %d", code)
			}
			if gone := world.Ended(d.Launch, 0); gone == keep {
				t.Errorf("hutch-launch has ended: %v", gone)
			}
			if keep {
				w.OK(t, "exec", "box", "--", "true")
				w.OK(t, "rm", "-f", "box")
			} else {
				w.Run(t, "exec", "box", "--", "true").Want(t, 125)
			}
		})
	}
}

// TestStopStuck: a hutchd that does not react ends with the daemon all the same, within
// the time that it is given, and its sandboxes are what the service manager wants of them.
func TestStopStuck(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Tolerated = append(w.Tolerated, "hutchd did not stop in time")
			serve := serve(t, w, keep)
			w.Create(t, "--name", "box", "host")
			d := w.Daemon(t)
			if err := unix.Kill(d.Hutchd, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := serve.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			const given = 30 * time.Second // runtime/monitor, stopTimeout
			ended := world.Ended(d.Monitor, given+world.Patience)
			if !ended {
				world.Kill(t, d.Hutchd)
			}
			_ = serve.Wait()
			if !ended {
				testenv.Late(t, "the daemon does not end")
			}
			if !world.Ended(d.Hutchd, world.Patience) {
				t.Error("hutchd lives on")
			}
			if gone := world.Ended(d.Launch, 0); gone == keep {
				t.Errorf("hutch-launch has ended: %v", gone)
			}
			if keep {
				w.OK(t, "exec", "box", "--", "true")
				w.OK(t, "rm", "-f", "box")
			}
			w.OK(t, "gc") // a hutchd that is killed removes nothing
		})
	}
}
