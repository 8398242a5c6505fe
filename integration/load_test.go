package integration_test

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

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLoad: twenty rounds of ten runs at once, each with its own output.
func TestLoad(t *testing.T) {
	w := newWorld(t)
	const abreast = 10
	for round := range rounds(20) {
		results := make([]result, abreast)
		var wg sync.WaitGroup
		for i := range abreast {
			cmd := w.command("run", "host", "--", "sh", "-c", fmt.Sprintf("echo %d-%d; hostname; exit %d", round, i, i))
			wg.Go(func() { results[i] = w.finish(t, cmd) })
		}
		wg.Wait()
		hosts := map[string]bool{}
		for i, r := range results {
			first, host, _ := strings.Cut(r.stdout, "\n")
			if r.code != i || first != fmt.Sprintf("%d-%d", round, i) || hosts[host] {
				t.Errorf("round %d, run %d: code %d, stdout %q, stderr %q", round, i, r.code, r.stdout, r.stderr)
			}
			hosts[host] = true
		}
	}
	w.awaitNoSandbox(t)
}

// TestFirstRuns: of twenty first runs at once one starts the daemon, and all use
// it.
func TestFirstRuns(t *testing.T) {
	for range rounds(3) {
		w := newWorld(t)
		var wg sync.WaitGroup
		for i := range 20 {
			cmd := w.command("run", "host", "echo", fmt.Sprint(i))
			wg.Go(func() {
				if r := w.finish(t, cmd); r.code != 0 || r.stdout != fmt.Sprintln(i) {
					t.Errorf("run %d: code %d, stdout %q, stderr %q", i, r.code, r.stdout, r.stderr)
				}
			})
		}
		wg.Wait()
		w.daemon(t)
		if starts := len(strings.Split(w.ok(t, "rpc", "system.info"), `"pid"`)) - 1; starts != 1 {
			t.Errorf("%d daemons answered", starts)
		}
		w.shutdown()
	}
}

// TestIdle: a shared daemon without work ends by itself, and the next command
// starts another.
func TestIdle(t *testing.T) {
	t.Parallel()
	idle := testenv.Patience(300 * time.Millisecond) // longer than who starts a daemon needs to connect
	w := newWorld(t, fmt.Sprintf("HUTCH_IDLE_S=%g", idle.Seconds()))
	w.inside(t, "true")
	for _, d := range w.daemons() {
		if !ended(d.monitor, patience) {
			t.Fatalf("daemon %d does not end", d.monitor)
		}
	}
	// Work keeps it: a sandbox, even an idle one.
	sb := w.create(t, "host")
	before := w.daemon(t).monitor
	w.ok(t, "exec", sb, "sleep", fmt.Sprint((3 * idle).Seconds()))
	if now := w.daemon(t).monitor; now != before {
		t.Errorf("daemon %d with a sandbox was replaced by %d", before, now)
	}
	// So does a client that says nothing.
	a := w.dial(t)
	w.ok(t, "rm", "-f", sb)
	if ended(before, 3*idle) {
		t.Error("the daemon ended before its client left")
	}
	a.close()
	if !ended(before, patience) {
		t.Errorf("daemon %d does not end after its last sandbox", before)
	}
}

// TestDaemonStops: SIGTERM and SIGINT end a daemon with everything in it.
func TestDaemonStops(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			w := newWorld(t)
			w.create(t, "host")
			c := w.start(t, "run", "host", "--", "sh", "-c", busy)
			d := w.daemon(t)
			if err := unix.Kill(d.monitor, sig); err != nil {
				t.Fatal(err)
			}
			if code := c.end(t); code != 125 && code != 137 {
				t.Errorf("the client ended with %d", code)
			}
			if !ended(d.monitor, patience) {
				t.Errorf("daemon %d does not end", d.monitor)
			}
		})
	}
}

// TestDaemonStopsWithoutAll: a daemon that can not remove everything says so and ends all the
// same; what is left goes with the next one. Root alone can make files that belong to nobody
// the daemon may act for.
func TestDaemonStopsWithoutAll(t *testing.T) {
	testenv.Root(t)
	w := newWorld(t)
	w.tolerated = append(w.tolerated, "remove sandbox", "could not remove everything")
	w.configure(t, noneAhead)
	w.create(t, "host")
	folders := w.sandboxFolders()
	if len(folders) != 1 {
		t.Fatalf("folders %v, want one", folders)
	}
	foreign := filepath.Join(folders[0], "foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o700), os.WriteFile(filepath.Join(foreign, "file"), nil, 0o600), os.Chown(foreign, 7, 7)); err != nil {
		t.Fatal(err)
	}
	d := w.daemon(t)
	w.ok(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
	for _, pid := range []int{d.hutchd, d.launch, d.monitor} {
		if !ended(pid, patience) {
			t.Errorf("process %d does not end", pid)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Fatal(err) // there was nothing that could not be removed
	}
	if err := os.RemoveAll(foreign); err != nil {
		t.Fatal(err)
	}
	w.ok(t, "gc")
	if left := w.sandboxFolders(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestServe: in the foreground, for a service manager.
func TestServe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inside(t, "true")
	c := w.command("serve")
	// A second daemon on the same socket is refused, and the first one stays.
	w.finish(t, c).want(t, 125)
	w.inside(t, "true")
}

// TestPrivate: a daemon of one command, which no other command sees.
func TestPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.ok(t, "run", "--private", "host", "echo", "mine"); got != "mine\n" {
		t.Errorf("got %q", got)
	}
	if w.answers() {
		t.Error("a private daemon listens on the shared socket")
	}
	c := w.start(t, "run", "--private", "host", "--", "sh", "-c", busy)
	if list := strings.TrimSpace(w.ok(t, "ps", "-q")); list != "" {
		t.Errorf("the shared daemon lists %q", list)
	}
	kill(t, c.Process.Pid)
	c.end(t)
	var wg sync.WaitGroup
	for i := range 4 {
		cmd := w.command("run", "--private", "host", "echo", fmt.Sprint(i))
		wg.Go(func() {
			if r := w.finish(t, cmd); r.code != 0 || r.stdout != fmt.Sprintln(i) {
				t.Errorf("run %d: code %d, stdout %q, stderr %q", i, r.code, r.stdout, r.stderr)
			}
		})
	}
	wg.Wait()
}
