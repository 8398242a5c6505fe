package isolation_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDaemonHardened: the daemon's own processes have walls, on every thread, and a sandbox
// has no filter of theirs on top of its own. The client, which starts setuid programs for the
// user, is the twin.
func TestDaemonHardened(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.Create(t, "host")
	d := w.Daemon(t)
	status := func(path string) map[string]string {
		t.Helper()
		text, err := os.ReadFile(path)
		if gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH); gone &&
			strings.Contains(path, "/task/") {
			return nil // a thread that has ended, as those do that were in another network namespace
		}
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		return fields
	}
	own := status("/proc/self/status")
	if own["NoNewPrivs"] != "0" {
		testenv.Require(t, probe.Check{
			Name: "new_privs", Status: probe.No, Detail: "the tests themselves run under no_new_privs",
			Remedy: "run them where nothing has set PR_SET_NO_NEW_PRIVS",
		})
	}
	filtered := map[string]bool{"hutch-launch": false, "hutchd": true, "monitor": true}
	for name, pid := range map[string]int{"hutch-launch": d.Launch, "hutchd": d.Hutchd, "monitor": d.Monitor} {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("%s, process %d: no threads, %v", name, pid, err)
		}
		for _, path := range threads {
			s := status(path)
			if s == nil {
				continue
			}
			want := own["Seccomp_filters"]
			if filtered[name] {
				want = fmt.Sprint(world.Decode[int](t, want) + 1)
			}
			if s["NoNewPrivs"] != "1" || s["Seccomp_filters"] != want {
				t.Errorf("%s, %s: no_new_privs %s, %s filters, want %s", name, path, s["NoNewPrivs"],
					s["Seccomp_filters"], want)
			}
		}
	}
	inside := status(fmt.Sprintf("/proc/%d/status", d.Sandboxes[0]))
	if got, want := inside["Seccomp_filters"], fmt.Sprint(world.Decode[int](t, own["Seccomp_filters"])+1); got != want {
		t.Errorf("PID 1 of the sandbox has %s filters, want %s", got, want)
	}
	// What the doctor tries in the monitor works as it does in the client.
	findings := func(args ...string) map[string]string {
		found := map[string]string{}
		for _, c := range world.Decode[api.Doctor](t, w.Run(t, args...).Stdout).Checks {
			found[c.Name] = c.Status
		}
		return found
	}
	a, b := findings("rpc", "system.doctor"), findings("doctor", "--json")
	delete(a, "network_enforcement") // is the daemon's alone
	if len(a) < 10 || !maps.Equal(a, b) {
		t.Errorf("the monitor finds %v, the client %v", a, b)
	}
}
