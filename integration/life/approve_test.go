package life_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestApprove: what a configuration allows is in force when its user has approved it at a terminal, as it stands; until
// then what is stricter is, and each command says so.
func TestApprove(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	file := w.Path("home/config.yaml")
	host := func() api.Info {
		t.Helper()
		return world.Decode[api.Info](t, w.OK(t, "rpc", "system.info"))
	}
	const held = "host_execution, network of the configuration are not in force, which nobody has approved"
	world.Write(t, file, "ready: none\nhost_execution: allowed\nnetwork: {allow: [a.test]}\n")
	w.Run(t, "run", "--", "true").Want(t, 0).Says(t, held, "hutch config approve")
	if got := host(); got.HostExecution != api.HostRefused || got.Network.Mode != api.NetNone {
		t.Errorf("without an approval: %s, %+v", got.HostExecution, got.Network)
	}
	w.Run(t, "run", "--mode", "off", "--", "true").Want(t, 125)
	if got := w.OK(t, "doctor"); !strings.Contains(got, held) {
		t.Errorf("doctor: %s", got)
	}
	w.Run(t, "config", "approve").Want(t, 125).Says(t, "is asked at a terminal", "--yes")

	answer := func(text string, code int) {
		t.Helper()
		p, cmd := w.Terminal(t, "config", "approve")
		p.Sees("Approve? [y/N]")
		p.Write(text + "\n")
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != code {
			t.Errorf("%q: %v, want exit code %d", text, err, code)
		}
	}
	answer("n", 1)
	if got := host(); got.HostExecution != api.HostRefused {
		t.Error("a no allows commands on the host")
	}
	answer("y", 0) // the daemon is told
	if got := host(); got.HostExecution != api.HostAllowed || got.Network.Mode != api.NetAllow {
		t.Errorf("approved: %s, %+v", got.HostExecution, got.Network)
	}
	if r := w.Run(t, "run", "--mode", "off", "--", "true").Want(t, 0); strings.Contains(r.Stderr, "approve") {
		t.Errorf("stderr: %s", r.Stderr)
	}
	if got := w.OK(t, "config", "approve"); !strings.Contains(got, "nothing waits") {
		t.Errorf("%s", got)
	}

	// A sandbox that can write the file after all, and a reload of its user's.
	world.Write(t, file, "ready: none\nhost_execution: allowed\nnetwork: {mode: open}\n")
	w.OK(t, "config", "reload")
	if got := host(); got.HostExecution != api.HostAllowed || got.Network.Mode != api.NetNone {
		t.Errorf("another network: %s, %+v", got.HostExecution, got.Network)
	}
	w.Run(t, "run", "--", "true").Want(t, 0).Says(t, "network of the configuration is not in force")
	w.OK(t, "config", "approve", "--yes")
	if got := host(); got.Network.Mode != api.NetOpen {
		t.Errorf("approved: %+v", got.Network)
	}
}

// TestOtherState: a command that names another state folder than the daemon's is told so, and does nothing with the
// wrong one.
func TestOtherState(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Create(t, "--name", "box", "host")
	other := w.Sub(t, "other")
	for _, args := range [][]string{{"ps"}, {"run", "host", "true"}, {"rm", "-f", "box"}} {
		cmd := w.Command(args...)
		cmd.Env = append(cmd.Env, "HUTCH_ROOT="+other)
		w.Finish(t, cmd).Want(t, 125).Says(t, "keeps its state in "+w.Root(), "this command names "+other,
			"HUTCH_ROOT="+w.Root())
	}
	// The same folder by another name is the same.
	if err := os.Symlink(w.Root(), w.Path("link")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ps"}, {"run", "host", "true"}} {
		cmd := w.Command(args...)
		cmd.Env = append(cmd.Env, "HUTCH_ROOT="+w.Path("link"))
		w.Finish(t, cmd).Want(t, 0)
	}
	w.OK(t, "rm", "-f", "box")
}

// TestStateGone: a daemon whose state folder is removed, or moved away, ends with its sandboxes, and the next command
// has a new one.
func TestStateGone(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	for name, gone := range map[string]func(root string) error{
		"removed": func(root string) error {
			_ = os.RemoveAll(root) // as far as it comes: a folder of an overlay's has mode 0
			return nil
		},
		"moved": func(root string) error { return os.Rename(root, root+".moved") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.Create(t, "host")
			d := w.Daemon(t)
			// What is mounted there is in the daemon's own mount namespace.
			if err := gone(w.Root()); err != nil {
				t.Fatal(err)
			}
			for _, pid := range []int{d.Monitor, d.Hutchd} {
				if !world.Ended(pid, world.Patience) {
					t.Fatalf("process %d lives on", pid)
				}
			}
			w.OK(t, "run", "host", "true")
			if _, err := os.Stat(filepath.Join(w.Root(), "data")); err != nil {
				t.Error(err)
			}
		})
	}
}
