package run_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLoad: twenty rounds of ten runs at once, each with its own output.
func TestLoad(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	const abreast = 10
	for round := range world.Rounds(20) {
		results := make([]world.Result, abreast)
		var wg sync.WaitGroup
		for i := range abreast {
			cmd := w.Command("run", "host", "--", "sh", "-c", fmt.Sprintf("echo %d-%d; hostname; exit %d", round, i, i))
			wg.Go(func() { results[i] = w.Finish(t, cmd) })
		}
		wg.Wait()
		hosts := map[string]bool{}
		for i, r := range results {
			first, host, _ := strings.Cut(r.Stdout, "\n")
			if r.Code != i || first != fmt.Sprintf("%d-%d", round, i) || hosts[host] {
				t.Errorf("round %d, run %d: code %d, stdout %q, stderr %q", round, i, r.Code, r.Stdout, r.Stderr)
			}
			hosts[host] = true
		}
	}
	w.AwaitNoSandbox(t)
}

// TestFirstRuns: of twenty first runs at once one starts the daemon, and all use
// it.
func TestFirstRuns(t *testing.T) {
	for range world.Rounds(3) {
		w := world.New(t)
		var wg sync.WaitGroup
		for i := range 20 {
			cmd := w.Command("run", "host", "echo", fmt.Sprint(i))
			wg.Go(func() {
				if r := w.Finish(t, cmd); r.Code != 0 || r.Stdout != fmt.Sprintln(i) {
					t.Errorf("run %d: code %d, stdout %q, stderr %q", i, r.Code, r.Stdout, r.Stderr)
				}
			})
		}
		wg.Wait()
		w.Daemon(t)
		if starts := len(strings.Split(w.OK(t, "rpc", "system.info"), `"pid"`)) - 1; starts != 1 {
			t.Errorf("%d daemons answered", starts)
		}
		w.Shutdown()
	}
}

// TestIdle: a shared daemon without work ends by itself, and the next command
// starts another.
func TestIdle(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	idle := testenv.Patience(300 * time.Millisecond) // longer than who starts a daemon needs to connect
	w := world.New(t, fmt.Sprintf("HUTCH_IDLE_S=%g", idle.Seconds()))
	w.Inside(t, "true")
	for _, d := range w.Daemons() {
		world.AwaitEnd(t, d.Monitor, "the idle daemon")
	}
	// Work keeps it: a sandbox, even an idle one.
	sb := w.Create(t, "host")
	before := w.Daemon(t).Monitor
	w.OK(t, "exec", sb, "sleep", fmt.Sprint((3 * idle).Seconds()))
	if now := w.Daemon(t).Monitor; now != before {
		t.Errorf("daemon %d with a sandbox was replaced by %d", before, now)
	}
	// So does a client that says nothing.
	a := w.Dial(t)
	w.OK(t, "rm", "-f", sb)
	if world.Ended(before, 3*idle) {
		t.Error("the daemon ended before its client left")
	}
	a.Close()
	world.AwaitEnd(t, before, "the daemon without its last sandbox")
}

// TestDaemonStops: SIGTERM and SIGINT end a daemon with everything in it.
func TestDaemonStops(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			w := world.New(t)
			w.Create(t, "host")
			c := w.Start(t, "run", "host", "--", "sh", "-c", world.Busy)
			d := w.Daemon(t)
			if err := unix.Kill(d.Monitor, sig); err != nil {
				t.Fatal(err)
			}
			if code := c.End(t); code != 125 && code != 137 {
				t.Errorf("the client ended with %d", code)
			}
			world.AwaitEnd(t, d.Monitor, "the daemon")
		})
	}
}

// TestDaemonStopsWithoutAll: a daemon that cannot remove everything says so and ends all the
// same; what is left goes with the next one. Root alone can make files that belong to nobody
// the daemon may act for.
func TestDaemonStopsWithoutAll(t *testing.T) {
	testenv.Root(t)
	w := world.New(t)
	w.Tolerated = append(w.Tolerated, "remove sandbox", "could not remove everything")
	w.Configure(t, world.NoneAhead)
	w.Create(t, "host")
	folders := w.SandboxFolders()
	if len(folders) != 1 {
		t.Fatalf("folders %v, want one", folders)
	}
	foreign := filepath.Join(folders[0], "foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o700), os.WriteFile(filepath.Join(foreign, "file"), nil, 0o600),
		os.Chown(foreign, 7, 7)); err != nil {
		t.Fatal(err)
	}
	d := w.Daemon(t)
	w.OK(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
	world.AwaitEnd(t, d.Hutchd, "hutchd")
	world.AwaitEnd(t, d.Launch, "hutch-launch")
	world.AwaitEnd(t, d.Monitor, "the monitor")
	if _, err := os.Stat(foreign); err != nil {
		t.Fatal(err) // there was nothing that could not be removed
	}
	if err := os.RemoveAll(foreign); err != nil {
		t.Fatal(err)
	}
	w.OK(t, "gc")
	if left := w.SandboxFolders(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestServe: in the foreground, for a service manager.
func TestServe(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Inside(t, "true")
	c := w.Command("serve")
	// A second daemon on the same socket is refused, and the first one stays.
	w.Finish(t, c).Want(t, 125)
	w.Inside(t, "true")
}

// TestPrivate: a daemon of one command, which no other command sees.
func TestPrivate(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	if got := w.OK(t, "run", "--private", "host", "echo", "mine"); got != "mine\n" {
		t.Errorf("got %q", got)
	}
	if w.Answers() {
		t.Error("a private daemon listens on the shared socket")
	}
	c := w.Start(t, "run", "--private", "host", "--", "sh", "-c", world.Busy)
	if list := strings.TrimSpace(w.OK(t, "ps", "-q")); list != "" {
		t.Errorf("the shared daemon lists %q", list)
	}
	world.Kill(t, c.Process.Pid)
	c.End(t)
	var wg sync.WaitGroup
	for i := range 4 {
		cmd := w.Command("run", "--private", "host", "echo", fmt.Sprint(i))
		wg.Go(func() {
			if r := w.Finish(t, cmd); r.Code != 0 || r.Stdout != fmt.Sprintln(i) {
				t.Errorf("run %d: code %d, stdout %q, stderr %q", i, r.Code, r.Stdout, r.Stderr)
			}
		})
	}
	wg.Wait()
}
