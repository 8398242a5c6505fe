package life_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// spinners keeps three processes busy: a child, one in a session of its own, and an orphan.
const spinners = `spin() { while :; do :; done; }
spin & (setsid sh -c 'while :; do :; done' &) ; (spin &) ; echo up; wait`

// usedBy is the CPU time, in ticks, of all processes in the pid namespace of pid1.
func usedBy(t testing.TB, pid1 int) (ticks map[int]int) {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid1))
	if err != nil {
		t.Fatal(err)
	}
	ticks = map[int]int{}
	for pid := range world.Processes() {
		if got, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); got != ns || pid == pid1 {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		ticks[pid] = user + system
	}
	return ticks
}

// standsStill says that no process of a sandbox has run for a while, which another one
// tells.
func standsStill(t testing.TB, pid1 int, other func()) bool {
	t.Helper()
	before := usedBy(t, pid1)
	other()
	after := usedBy(t, pid1)
	still := len(after) > 0
	for pid, ticks := range after { // one that is gone is a worker whose time was over
		was, known := before[pid]
		still = still && known && ticks == was
	}
	if !still {
		t.Logf("CPU ticks by process: %v, then %v", before, after)
	}
	return still
}

// awaitRunning returns when the processes of a sandbox use CPU time again.
func awaitRunning(t testing.TB, pid1 int, other func()) {
	t.Helper()
	for range 100 {
		if !standsStill(t, pid1, other) {
			return
		}
	}
	testenv.Late(t, "its processes do not go on")
}

// TestPause: a paused sandbox uses no CPU time, whatever runs in it, says so, and goes on by
// itself with the next command or file.
func TestPause(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb, other := world.Box(t, c), world.Box(t, c)
	events, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	a := w.Dial(t)
	a.Call(nil, "fs.stat", world.Params{"sandbox": sb, "path": "/"}) // a worker
	exec := a.Started(sb, spinners, world.Params{"background": true})
	a.Call(nil, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 10})
	rec, err := c.GetSandbox(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	nap := func() { a.Exec(other, "sleep 0.1") }
	awaitRunning(t, rec.PID, nap)

	for range 2 { // the second does nothing
		paused, err := c.Pause(t.Context(), sb)
		want := map[bool]api.PauseMeans{true: api.PauseFreezer, false: api.PauseSignal}[world.Grouped()]
		if err != nil || paused.State != api.Paused || paused.Paused == nil || paused.Paused.By != want {
			t.Fatalf("%+v, %v, want one by %s", paused, err, want)
		}
	}
	if !standsStill(t, rec.PID, nap) {
		t.Error("processes of a paused sandbox run")
	}
	if e := world.StateOf(t, events); e.State != api.Paused {
		t.Errorf("%+v", e)
	}
	for range 2 {
		resumed, err := c.Resume(t.Context(), sb)
		if err != nil || resumed.State != api.Running || resumed.Paused != nil {
			t.Fatalf("%+v, %v", resumed, err)
		}
	}
	if e := world.StateOf(t, events); e.State != api.Running {
		t.Errorf("%+v", e)
	}
	awaitRunning(t, rec.PID, nap)

	// What needs it to run resumes it.
	for name, use := range map[string]func(){
		"exec.run": func() {
			if res := a.Exec(sb, "echo hello"); res.Stdout != "hello\n" {
				t.Errorf("%+v", res)
			}
		},
		"fs.stat":    func() { a.Call(nil, "fs.stat", world.Params{"sandbox": sb, "path": "/etc/hosts"}) },
		"shell.open": func() { a.Call(nil, "shell.open", world.Params{"sandbox": sb}) },
	} {
		if _, err := c.Pause(t.Context(), sb); err != nil {
			t.Fatal(err)
		}
		use()
		if rec, err := c.GetSandbox(t.Context(), sb); err != nil || rec.State != api.Running {
			t.Errorf("after %s: %+v, %v", name, rec, err)
		}
	}
	// Commands and sandboxes can be ended while they are paused.
	if _, err := c.Pause(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	var res world.ExecResult
	a.Call(&res, "exec.kill", world.Params{"exec": exec})
	if res.Verdict != "killed" || len(res.Killed) < 4 && world.Grouped() {
		t.Errorf("%+v", res)
	}
	if rec, err := c.GetSandbox(t.Context(), sb); err != nil || rec.State != api.Paused {
		t.Errorf("after the kill: %+v, %v", rec, err)
	}
	w.OK(t, "rm", "-f", sb, other)
	a.Refused("not_found", "sandbox.pause", world.Params{"sandbox": sb})
}

// TestPauseDeath: a paused sandbox stays so whatever becomes of the daemon.
func TestPauseDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.LogOnFailure(t)
	sb, other := strings.TrimSpace(w.Create(t, "host")), strings.TrimSpace(w.Create(t, "host"))
	ex := strings.TrimSpace(w.OK(t, "exec", "-d", sb, "--", "sh", "-c",
		"echo up; while [ ! -e /tmp/end ]; do :; done; exit 7"))
	w.OK(t, "rpc", "exec.read", fmt.Sprintf(`{"exec":%q,"stream":"stdout","offset":0,"wait_s":10}`, ex))
	pid1 := world.Decode[api.Sandbox](t, w.OK(t, "inspect", sb)).PID
	nap := func() { w.OK(t, "exec", other, "--", "sleep", "0.1") }
	w.OK(t, "pause", sb)
	for _, victim := range world.Victims {
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		if rec := world.Decode[api.Sandbox](t, w.OK(t, "inspect", sb)); rec.State != api.Paused || rec.Paused == nil {
			t.Errorf("after the death of %s: %+v", victim.Name, rec)
		}
		if !standsStill(t, pid1, nap) {
			t.Errorf("after the death of %s processes of a paused sandbox run", victim.Name)
		}
	}
	w.OK(t, "resume", sb)
	awaitRunning(t, pid1, nap)
	w.OK(t, "exec", sb, "--", "touch", "/tmp/end")
	ended := w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex))
	if res := world.Decode[api.ExecResult](t, ended); res.ExitCode != 7 {
		t.Errorf("%+v", res)
	}
	w.OK(t, "rm", "-f", sb, other)
}

// TestLifeCrowd: fifty sandboxes whose time is over at once leave nothing behind.
func TestLifeCrowd(t *testing.T) {
	testenv.Suite(t, "many")
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	actions := []string{"pause", "stop", "kill", "remove", "remove"}
	var boxes []string
	calls := make([]*world.Pending, 50)
	for i := range calls {
		// The pause comes first, and the end of the paused ones as well.
		calls[i] = c.Start("sandbox.create", world.Params{
			"image": "host", "ttl_s": 4, "idle_s": 1, "idle_action": actions[i%len(actions)],
		})
	}
	for _, call := range calls {
		m := call.Wait()
		if m.Error != nil {
			t.Fatal(m.Error)
		}
		boxes = append(boxes, world.Decode[api.Sandbox](t, string(m.Result)).ID)
	}
	w.AwaitNoSandbox(t)
	// Those that were stopped first.
	world.AwaitEmpty(t, filepath.Join(w.Root(), "data/shelf/boxes"), time.Now().Add(world.Patience))
	for _, sb := range boxes {
		c.Refused("not_found", "sandbox.get", world.Params{"sandbox": sb})
	}
}
