package death_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// faulty builds hutchd and hutch-launch with their fault seams, once, beside the
// other binaries, and returns the folder.
var faulty = sync.OnceValues(func() (string, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return "", err
	}
	// The go command's own cache makes this fast from the second time on.
	dir := filepath.Join(root, ".cache", "faulty")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	bin := os.Getenv(testenv.BinVar)
	if bin == "" {
		bin = filepath.Join(root, "bin")
	}
	for _, name := range []string{"hutch", "hutch-init", "hutch-scan"} {
		if out, err := exec.Command("cp", "--remove-destination", filepath.Join(bin, name), dir).
			CombinedOutput(); err != nil {
			return "", fmt.Errorf("copy %s: %w: %s", name, err, out)
		}
	}
	// Another build id would make hutch replace the daemon.
	out, err := exec.Command(filepath.Join(bin, "hutch"), "version", "--json").Output()
	if err != nil {
		return "", err
	}
	id := regexp.MustCompile(`"build_id": "(\w+)"`).FindSubmatch(out)
	if id == nil {
		return "", fmt.Errorf("no build id in %s", out)
	}
	stamp := "-s -w -X github.com/hutch-sh/hutch/internal/version.BuildID=" + string(id[1])
	for _, b := range []struct{ name, cgo, tags, flags string }{
		{"hutchd", "0", "containers_image_openpgp hutch_faults", stamp},
		{"hutch-launch", "1", "seccomp netgo osusergo hutch_faults", stamp +
			` -linkmode external -extldflags "-static"`},
	} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", b.tags, "-ldflags", b.flags, "-o",
			filepath.Join(dir, b.name), "./cmd/"+b.name)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", b.name, err, out)
		}
	}
	return dir, nil
})

// TestFaults makes each step of creating a sandbox fail: the error is typed, the
// daemon goes on, and nothing of the attempt is left.
func TestFaults(t *testing.T) {
	testenv.Suite(t, "slow")
	testenv.Toolchain(t)
	bin, err := faulty()
	if err != nil {
		t.Fatal(err)
	}
	for _, seam := range []struct {
		variable, words string
		least           int // steps that there must be at least
	}{
		{"HUTCH_FAULT_STEP", "fault injected before step", 9},
		{"HUTCH_FAULT_LAUNCH", "fault injected after step", 4},
	} {
		t.Run(seam.variable, func(t *testing.T) {
			for step := 0; ; step++ {
				if !failsAt(t, bin, seam.variable, step, seam.words) {
					if step < seam.least {
						t.Errorf("only %d steps have a seam", step)
					}
					return
				}
			}
		})
	}
}

// failsAt makes one step fail and reports whether there is such a step.
func failsAt(t *testing.T, bin, variable string, step int, words string) bool {
	w, err := world.Make(t, bin, fmt.Sprintf("%s=%d,%d", variable, step, faultTimes))
	if err != nil {
		t.Fatal(err)
	}
	w.Configure(t, world.NoneAhead)
	defer w.End()
	dir := w.Sub(t, "work")
	c := w.Dial(t)
	defer c.Close()
	create := func() world.Message {
		return c.Start("sandbox.create",
			world.Params{"image": "host", "name": "box",
				"mounts":  []world.Params{{"source": "/usr/share", "target": "/srv/s", "mode": "ro"}},
				"network": world.Params{"mode": "allow", "allow": []string{"a.test", "udp://a.test:123"}}}).Wait()
	}
	m := create() // makes what is kept for all sandboxes, too
	if m.Error == nil {
		return false
	}
	idle := w.Resources(t)
	idle.Hutchd += world.NetworksAhead - idle.Networks // which it may still be making
	m = create()
	if m.Error.Data.Code != "internal" || !strings.Contains(m.Error.Message, words) {
		t.Errorf("step %d: %s", step, m.Error)
	}
	var list struct{ Sandboxes []any }
	c.Call(&list, "sandbox.list", world.Params{})
	if len(list.Sandboxes) != 0 {
		t.Errorf("step %d: listed: %v", step, list.Sandboxes)
	}
	if dirs := w.SandboxFolders(); len(dirs) > 0 {
		t.Errorf("step %d: folders %v", step, dirs)
	}
	// A second failure, with a workspace and through the command line, which tells; with a
	// network and without.
	network := []string{"--network", "open"}
	w.HeldAgain(t, fmt.Sprintf("step %d", step), idle, func() {
		w.Run(t, append(append([]string{"run", "--name", "box", "--workspace", dir}, network...), "host", "true")...).
			Want(t, 125).Says(t, words)
		network = nil
	})
	// The same daemon is well again, once it has failed often enough.
	for range faultTimes {
		if w.Run(t, "run", "--name", "box", "host", "true").Code == 0 {
			return true
		}
	}
	w.OK(t, "run", "--name", "box", "host", "true")
	return true
}

// faultTimes is how often a step fails: HeldAgain may need some.
const faultTimes = 2 + world.HeldTries

// TestNothingHeld: a daemon that made and removed many sandboxes holds what it
// held before.
func TestNothingHeld(t *testing.T) {
	testenv.Axes(t, testenv.User)
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	w.Inside(t, "true")
	w.AwaitNoSandbox(t)
	idle := w.Resources(t)
	for i := range world.Rounds(10) {
		w.OK(t, "run", "--workspace", w.Sub(t, "work")+":overlay", "host", "--", "sh", "-c", "sleep infinity & echo "+
			strconv.Itoa(i))
		w.Run(t, "run", "--timeout", "0.05", "host", "sleep", "infinity").Want(t, 124)
		w.Run(t, "run", "host", "no-such-program").Want(t, 127)
		w.Run(t, "run", "-u", "no-such-user", "host", "true").Want(t, 125)
	}
	w.AwaitNoSandbox(t)
	w.HeldAgain(t, "in the end", idle, func() { w.Inside(t, "true"); w.AwaitNoSandbox(t) })
}
