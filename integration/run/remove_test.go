package run_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// swarm is a crowd of processes that try to stay: in sessions of their own, deaf to signals, in nested pid namespaces
// where that is allowed.
const swarm = `for i in 1 2 3 4 5 6 7 8; do
setsid sh -c 'trap "" TERM INT HUP; sleep infinity & exec sleep infinity' >/dev/null 2>&1 </dev/null &
(setsid sleep infinity >/dev/null 2>&1 </dev/null &)
done
unshare -Urpf sleep infinity >/dev/null 2>&1 </dev/null &
while [ $(ls -d /proc/[0-9]*/ | wc -l) -lt 26 ]; do :; done`

// TestRemoveDead: when a removal is answered, no process of the sandbox is there any more, not even as a zombie, and
// its cgroups are empty or gone. The answer names them all.
func TestRemoveDead(t *testing.T) {
	testenv.Axes(t, testenv.User)
	w := world.New(t)
	c := w.Connect(t)
	for i := range world.Rounds(30) {
		sb := world.Box(t, c)
		if res := world.Ran(t, c, sb, swarm); res.ExitCode != 0 {
			t.Fatalf("%+v", res)
		}
		r, err := c.GetSandbox(t.Context(), sb)
		if err != nil {
			t.Fatal(err)
		}
		ns, nsErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.PID))
		killed, err := c.Remove(t.Context(), sb)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range killed {
			if p, there := world.ReadProcess(pid); there {
				t.Errorf("round %d: process %d is there: %+v", i, pid, p)
			}
		}
		if len(killed) < 20 || killed[0] != r.PID {
			t.Errorf("PID 1 is %d, killed %v", r.PID, killed)
		}
		for _, p := range w.Processes() { // the number of a namespace is given again, to a sandbox of another test, say
			if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.PID)); err == nil && nsErr == nil && its == ns {
				t.Errorf("round %d: %d is the sandbox's: %q", i, p.PID, p.Args)
			}
		}
		for _, tree := range world.CgroupTrees() {
			for _, pattern := range []string{"cgroup.procs", "*/cgroup.procs"} {
				files, _ := filepath.Glob(filepath.Join(tree, "sandboxes", sb, pattern))
				for _, file := range files {
					if text, _ := os.ReadFile(file); len(text) > 0 {
						t.Errorf("round %d: %s has %q", i, file, text)
					}
				}
			}
		}
		if _, err := c.GetSandbox(t.Context(), sb); api.ErrorCode(err) != api.NotFound {
			t.Errorf("a sandbox that was removed: %v", err)
		}
	}
	w.AwaitNoSandbox(t)
}

// TestRemoveFree: what a sandbox had is free when its removal is answered, whatever of it is still mounted: its name,
// address, volume, image and quota.
func TestRemoveFree(t *testing.T) {
	testenv.Axes(t, testenv.User)
	w := world.New(t)
	w.Configure(t, "quotas: {sandboxes: 1}\n")
	w.ImportTiny(t, "base:1")
	c := w.Connect(t)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := port.Addr().String()
	_ = port.Close()
	dir := w.Sub(t, "work")
	world.Write(t, filepath.Join(dir, "kept"), "kept\n")
	for i := range world.Rounds(20) {
		if i%2 == 1 { // nobody is to have an image that was removed
			w.ImportTiny(t, "base:1")
		}
		sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{
			Name: "box", Image: "base:1", User: "0",
			Mounts: []api.Mount{{Volume: "v", Target: "/data", Mode: api.ModeRW}},
		}}, nil, nil)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if res := world.Ran(t, c, sb.ID,
			"while read x; do echo $x; done </dir/b; echo x >/data/f; echo y >/dir/b; i=0; while [ $i -lt 200 ]; do echo $i >/tmp/$i; i=$((i+1)); done"); res.Stdout != "changed\n" {
			t.Errorf("round %d: %+v", i, res)
		}
		if _, err := c.ExposePort(t.Context(), api.PortExposeParams{Sandbox: sb.ID, Port: 80, Address: at},
			nil); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if _, err := c.Remove(t.Context(), "box"); err != nil {
			t.Fatal(err)
		}
		if list, err := c.ListSandboxes(t.Context(), nil); err != nil || len(list) > 0 {
			t.Errorf("round %d: %v, %v", i, list, err)
		}
		if err := c.RemoveVolume(t.Context(), "v"); err != nil {
			t.Errorf("round %d: %v", i, err)
		}
		if i%2 == 0 {
			if err := c.RemoveImage(t.Context(), "base:1"); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
			if left, _ := os.ReadDir(filepath.Join(w.Root(), "data/images/layers")); len(left) > 0 {
				t.Errorf("round %d: layers of an image that nothing has: %v", i, left)
			}
		}
	}
	// A workspace is not touched by what goes on in the background.
	w.OK(t, "run", "--workspace", dir+":rw", "host", "--", "cat", "kept")
	w.AwaitNoSandbox(t)
	if text, err := os.ReadFile(filepath.Join(dir, "kept")); string(text) != "kept\n" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := c.Info(t.Context()); err != nil || info.Counts.Sandboxes != 0 {
		t.Errorf("%+v, %v", info.Counts, err)
	}
}

// TestRemoveMany: more removals at once than may go on behind their replies; all are answered, and in the end nothing
// is left while the daemon runs.
func TestRemoveMany(t *testing.T) {
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	c := w.Connect(t)
	world.Box(t, c)
	ids := make([]string, 40)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = world.Box(t, c) })
	}
	wg.Wait()
	mounts := func() (n int) {
		for _, line := range world.Lines(fmt.Sprintf("/proc/%d/mountinfo", w.Daemon(t).Hutchd)) {
			if slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(line, id) }) {
				n++
			}
		}
		return n
	}
	if mounts() < len(ids) {
		t.Fatalf("%d mounts of %d sandboxes", mounts(), len(ids))
	}
	for i := range ids {
		wg.Go(func() {
			if _, err := c.Remove(t.Context(), ids[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := c.ListSandboxes(t.Context(), nil)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if info, err := c.Info(t.Context()); err != nil || info.Counts.Removing < 0 {
		t.Errorf("%+v, %v", info.Counts, err)
	}
	w.OK(t, "rm", "-f", list[0].ID)
	w.AwaitNoSandbox(t)
	if n := mounts(); n > 0 {
		t.Errorf("%d mounts are left", n)
	}
	for _, tree := range world.CgroupTrees() {
		for _, id := range ids {
			if _, err := os.Stat(filepath.Join(tree, "sandboxes", id)); err == nil {
				t.Errorf("%s has a cgroup in %s", id, tree)
			}
		}
	}
}

// TestRemoveDeath kills hutchd, the monitor or both behind the replies to removals: the next hutchd has none of the
// sandboxes, whatever was left of them goes before it answers, and their names are free, before the death as well as
// after.
func TestRemoveDeath(t *testing.T) {
	testenv.Axes(t, testenv.User)
	w := world.New(t)
	w.LogOnFailure(t)
	dir := w.Sub(t, "work")
	world.Write(t, filepath.Join(dir, "kept"), "kept\n")
	const n = 3
	remake := func(c *hutch.Client, i int) string {
		t.Helper()
		sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{
			Name: "box" + strconv.Itoa(i), Image: "host",
			Mounts: []api.Mount{{Volume: "v", Target: "/data", Mode: api.ModeRW}},
		}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	for round := range world.Rounds(40) {
		c := w.Reconnect(t)
		d := w.Daemon(t)
		var ids [n]string
		for i := range ids {
			ids[i] = remake(c, i)
		}
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() {
				if _, err := c.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		again := ""
		if round%4 > 1 {
			again = remake(c, 0)
		}
		world.KillNow(t, world.Victims[round%len(world.Victims)].PIDs(d))
		for _, pid := range world.Victims[round%len(world.Victims)].PIDs(d) {
			world.Kill(t, pid) // and wait
		}
		c = w.Reconnect(t)
		// Its cgroup is swept when it has ended.
		if now := w.Daemon(t); now.Launch != d.Launch && !world.Ended(d.Launch, world.Patience) {
			t.Fatalf("round %d: hutch-launch %d of a monitor that was killed does not end", round, d.Launch)
		}
		list, err := c.ListSandboxes(t.Context(), nil)
		if err != nil || again == "" && len(list) > 0 || again != "" &&
			(len(list) != 1 || list[0].ID != again || list[0].State != api.Running) {
			t.Fatalf("round %d: made again %q: %+v, %v", round, again, list, err)
		}
		for _, id := range ids {
			if at, _ := filepath.Glob(filepath.Join(w.Root(), "data/daemons/*/sandboxes", id)); len(at) > 0 {
				t.Errorf("round %d: %v", round, at)
			}
			for _, line := range world.Lines(fmt.Sprintf("/proc/%d/mountinfo", w.Daemon(t).Launch)) {
				if strings.Contains(line, id) {
					t.Errorf("round %d: mounted: %s", round, line)
				}
			}
		}
		if again != "" {
			if res := world.Ran(t, c, again, "echo alive >/data/f; cat /data/f"); res.Stdout != "alive\n" {
				t.Errorf("round %d: %+v", round, res)
			}
			if _, err := c.Remove(t.Context(), again); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.RemoveVolume(t.Context(), "v"); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	w.AwaitNoSandbox(t)
	w.OK(t, "gc")
}
