package integration_test

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
		if out, err := exec.Command("cp", "--remove-destination", filepath.Join(bin, name), dir).CombinedOutput(); err != nil {
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
		{"hutch-launch", "1", "seccomp netgo osusergo hutch_faults", stamp + ` -linkmode external -extldflags "-static"`},
	} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", b.tags, "-ldflags", b.flags, "-o", filepath.Join(dir, b.name), "./cmd/"+b.name)
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
	w, err := makeWorld(t, bin, fmt.Sprintf("%s=%d,%d", variable, step, faultTimes))
	if err != nil {
		t.Fatal(err)
	}
	w.configure(t, noneAhead)
	defer w.end()
	dir := w.sub(t, "work")
	c := w.dial(t)
	defer c.close()
	create := func() message {
		return c.start("sandbox.create", params{"image": "host", "name": "box", "mounts": []params{{"source": "/usr/share", "target": "/srv/s", "mode": "ro"}},
			"network": params{"mode": "allow", "allow": []string{"a.test", "udp://a.test:123"}}}).wait()
	}
	m := create() // makes what is kept for all sandboxes, too
	if m.Error == nil {
		return false
	}
	idle := w.resources(t)
	idle.hutchd += networksAhead - idle.networks // which it may still be making
	m = create()
	if m.Error.Data.Code != "internal" || !strings.Contains(m.Error.Message, words) {
		t.Errorf("step %d: %s", step, m.Error)
	}
	var list struct{ Sandboxes []any }
	c.call(&list, "sandbox.list", params{})
	if len(list.Sandboxes) != 0 {
		t.Errorf("step %d: listed: %v", step, list.Sandboxes)
	}
	if dirs := w.sandboxFolders(); len(dirs) > 0 {
		t.Errorf("step %d: folders %v", step, dirs)
	}
	// A second failure, with a workspace and through the command line, which tells; with a
	// network and without.
	network := []string{"--network", "open"}
	w.heldAgain(t, fmt.Sprintf("step %d", step), idle, func() {
		w.run(t, append(append([]string{"run", "--name", "box", "--workspace", dir}, network...), "host", "true")...).want(t, 125).says(t, words)
		network = nil
	})
	// The same daemon is well again, once it has failed often enough.
	for range faultTimes {
		if w.run(t, "run", "--name", "box", "host", "true").code == 0 {
			return true
		}
	}
	w.ok(t, "run", "--name", "box", "host", "true")
	return true
}

// faultTimes is how often a step fails: heldAgain may need some.
const faultTimes = 2 + heldTries

// heldAgain repeats work until the daemon holds no more than when it was idle. An
// answer may be here before the daemon has closed its last file; what leaks only
// gets more.
func (w *world) heldAgain(t *testing.T, what string, idle resources, work func()) {
	t.Helper()
	var now resources
	for range heldTries {
		work()
		if now = w.resources(t); !now.above(idle) {
			return
		}
	}
	t.Errorf("%s: the daemon held %+v, now %+v", what, idle, now)
}

// networksAhead is how many network namespaces hutchd keeps for sandboxes to come, with the
// one that it makes to find that there are enough.
const networksAhead = 4 + 1

// heldTries bounds heldAgain.
const heldTries = 10

// resources are what a daemon could leak.
type resources struct {
	processes, mounts, cgroups int
	hutchd, launch             int // open fds
	networks                   int // of hutchd's
}

// above reports whether there is more of anything.
func (r resources) above(idle resources) bool {
	return r.processes > idle.processes || r.mounts > idle.mounts || r.cgroups > idle.cgroups ||
		r.hutchd > idle.hutchd || r.launch > idle.launch
}

func (w *world) resources(t *testing.T) resources {
	t.Helper()
	d := w.daemon(t)
	networks := 0
	fds := func(pid int) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range entries {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			if strings.HasPrefix(to, "net:") && pid == d.hutchd {
				networks++
			}
			switch {
			case strings.HasPrefix(to, "socket:"): // connections come and go
			case to == "anon_inode:[pidfd]", strings.HasPrefix(to, "/sys/fs/cgroup/"):
				// What libcontainer leaves to the garbage collector.
			default:
				n++
			}
		}
		return n
	}
	groups := 0
	for _, tree := range w.leftCgroups() {
		dirs, _ := filepath.Glob(filepath.Join(tree, "sandboxes", "*", "cgroup.procs"))
		groups += len(dirs)
	}
	mounts := 0
	for _, line := range lines(fmt.Sprintf("/proc/%d/mountinfo", d.hutchd)) {
		// Others are the machine's: what another test mounts there comes here, too. And a daemon gets another view of
		// the host when something changes there, as an account that is made.
		_, own, found := strings.Cut(strings.Fields(line)[4], "/daemons/")
		if found && !strings.Contains(own, "/view") {
			mounts++
		}
	}
	hutchd, launch := fds(d.hutchd), fds(d.launch)
	return resources{
		networks: networks, hutchd: hutchd, launch: launch,
		processes: len(d.sandboxes), mounts: mounts,
		cgroups: groups,
	}
}

// TestNothingHeld: a daemon that made and removed many sandboxes holds what it
// held before.
func TestNothingHeld(t *testing.T) {
	w := newWorld(t)
	w.configure(t, noneAhead)
	w.inside(t, "true")
	w.awaitNoSandbox(t)
	idle := w.resources(t)
	for i := range rounds(10) {
		w.ok(t, "run", "--workspace", w.sub(t, "work")+":overlay", "host", "--", "sh", "-c", "sleep infinity & echo "+strconv.Itoa(i))
		w.run(t, "run", "--timeout", "0.05", "host", "sleep", "infinity").want(t, 124)
		w.run(t, "run", "host", "no-such-program").want(t, 127)
		w.run(t, "run", "-u", "no-such-user", "host", "true").want(t, 125)
	}
	w.awaitNoSandbox(t)
	w.heldAgain(t, "in the end", idle, func() { w.inside(t, "true"); w.awaitNoSandbox(t) })
}
