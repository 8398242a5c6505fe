package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
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
	for pid := range processes() {
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
	t.Error("its processes do not go on")
}

// TestPause: a paused sandbox uses no CPU time, whatever runs in it, says so, and goes on by
// itself with the next command or file.
func TestPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
	sb, other := box(t, c), box(t, c)
	events, err := c.Subscribe(t.Context(), api.SubscribeParams{Sandbox: sb, Kinds: []api.EventKind{api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	a := w.dial(t)
	a.call(nil, "fs.stat", params{"sandbox": sb, "path": "/"}) // a worker
	exec := a.started(sb, spinners, params{"background": true})
	a.call(nil, "exec.read", params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 10})
	rec, err := c.GetSandbox(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	nap := func() { a.exec(other, "sleep 0.1") }
	awaitRunning(t, rec.PID, nap)

	for range 2 { // the second does nothing
		paused, err := c.Pause(t.Context(), sb)
		want := map[bool]api.PauseMeans{true: api.PauseFreezer, false: api.PauseSignal}[grouped()]
		if err != nil || paused.State != api.Paused || paused.Paused == nil || paused.Paused.By != want {
			t.Fatalf("%+v, %v, want one by %s", paused, err, want)
		}
	}
	if !standsStill(t, rec.PID, nap) {
		t.Error("processes of a paused sandbox run")
	}
	if e := stateOf(t, events); e.State != api.Paused {
		t.Errorf("%+v", e)
	}
	for range 2 {
		resumed, err := c.Resume(t.Context(), sb)
		if err != nil || resumed.State != api.Running || resumed.Paused != nil {
			t.Fatalf("%+v, %v", resumed, err)
		}
	}
	if e := stateOf(t, events); e.State != api.Running {
		t.Errorf("%+v", e)
	}
	awaitRunning(t, rec.PID, nap)

	// What needs it to run resumes it.
	for name, use := range map[string]func(){
		"exec.run": func() {
			if res := a.exec(sb, "echo hello"); res.Stdout != "hello\n" {
				t.Errorf("%+v", res)
			}
		},
		"fs.stat":    func() { a.call(nil, "fs.stat", params{"sandbox": sb, "path": "/etc/hosts"}) },
		"shell.open": func() { a.call(nil, "shell.open", params{"sandbox": sb}) },
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
	var res execResult
	a.call(&res, "exec.kill", params{"exec": exec})
	if res.Verdict != "killed" || len(res.Killed) < 4 && grouped() {
		t.Errorf("%+v", res)
	}
	if rec, err := c.GetSandbox(t.Context(), sb); err != nil || rec.State != api.Paused {
		t.Errorf("after the kill: %+v, %v", rec, err)
	}
	w.ok(t, "rm", "-f", sb, other)
	a.refused("not_found", "sandbox.pause", params{"sandbox": sb})
}

// stateOf is the next state of a sandbox that events tell of.
func stateOf(t testing.TB, events *hutch.Events) (data api.StateEvent) {
	t.Helper()
	if err := json.Unmarshal(nextOf(t, events, api.EventSandboxState).Data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPauseTimeout: the clock of a command's timeout stands still with it, and goes on.
func TestPauseTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	sb, other := c.sandboxOf(nil), c.sandboxOf(nil)
	lives := c.started(sb, "echo up; read x; echo got $x", params{"timeout_s": 60}) // what it does takes long on a busy machine
	c.call(nil, "exec.read", params{"exec": lives, "stream": "stdout", "offset": 0, "wait_s": 10})
	dies := c.started(sb, "sleep 4242", params{"timeout_s": 4})
	c.call(nil, "sandbox.pause", params{"sandbox": sb})
	c.exec(other, "sleep 4.5")
	c.call(nil, "sandbox.resume", params{"sandbox": sb})
	c.call(nil, "exec.write", params{"exec": lives, "data": "word\n"})
	if res := c.waited(lives); res.Verdict != "ok" || res.Stdout != "up\ngot word\n" {
		t.Errorf("%+v", res)
	}
	if res := c.waited(dies); res.Verdict != "timeout_wall" || res.DurationMS < 8400 {
		t.Errorf("%+v", res)
	}
}

// TestPauseDeath: a paused sandbox stays so whatever becomes of the daemon.
func TestPauseDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.logOnFailure(t)
	sb, other := strings.TrimSpace(w.create(t, "host")), strings.TrimSpace(w.create(t, "host"))
	ex := strings.TrimSpace(w.ok(t, "exec", "-d", sb, "--", "sh", "-c", "echo up; while [ ! -e /tmp/end ]; do :; done; exit 7"))
	w.ok(t, "rpc", "exec.read", fmt.Sprintf(`{"exec":%q,"stream":"stdout","offset":0,"wait_s":10}`, ex))
	pid1 := decode[api.Sandbox](t, w.ok(t, "inspect", sb)).PID
	nap := func() { w.ok(t, "exec", other, "--", "sleep", "0.1") }
	w.ok(t, "pause", sb)
	for _, victim := range victims {
		for _, pid := range victim.pids(w.daemon(t)) {
			kill(t, pid)
		}
		if rec := decode[api.Sandbox](t, w.ok(t, "inspect", sb)); rec.State != api.Paused || rec.Paused == nil {
			t.Errorf("after the death of %s: %+v", victim.name, rec)
		}
		if !standsStill(t, pid1, nap) {
			t.Errorf("after the death of %s processes of a paused sandbox run", victim.name)
		}
	}
	w.ok(t, "resume", sb)
	awaitRunning(t, pid1, nap)
	w.ok(t, "exec", sb, "--", "touch", "/tmp/end")
	if res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex))); res.ExitCode != 7 {
		t.Errorf("%+v", res)
	}
	w.ok(t, "rm", "-f", sb, other)
}

// TestLife: what becomes of sandboxes when their ttl_s or idle_s is over.
func TestLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
	a := w.dial(t)
	for _, tt := range []struct {
		name, action string
		want         api.State
		code         int // of a command that obeys SIGTERM
	}{
		{"ttl", "pause", api.Paused, 0}, {"ttl", "stop", api.Stopped, 3}, {"ttl", "kill", api.Stopped, 137}, {"ttl", "remove", api.StateRemoved, 137},
		{"idle", "pause", api.Paused, 0}, {"idle", "stop", api.Stopped, 0}, {"idle", "kill", api.Stopped, 0}, {"idle", "remove", api.StateRemoved, 0},
	} {
		t.Run(tt.name+" "+tt.action, func(t *testing.T) {
			events, err := c.Subscribe(t.Context(), api.SubscribeParams{Kinds: []api.EventKind{api.EventSandboxState}})
			if err != nil {
				t.Fatal(err)
			}
			sb := a.sandboxOf(params{tt.name + "_s": aWhile().Seconds(), tt.name + "_action": tt.action})
			var call *pending
			if tt.code > 0 {
				call = a.start("exec.run", params{"sandbox": sb, "command": "trap 'exit 3' TERM; while :; do sleep 0.1; done"})
			}
			for {
				e := nextOf(t, events, api.EventSandboxState)
				var data api.StateEvent
				if err := json.Unmarshal(e.Data, &data); err != nil {
					t.Fatal(err)
				}
				if e.Sandbox != sb || data.State == api.Running || data.State == api.Stopped && tt.want == api.StateRemoved {
					continue
				}
				if data.State != tt.want || tt.want != api.StateRemoved && !strings.Contains(data.Reason, tt.name+"_s is over") {
					t.Errorf("%+v, want %s", data, tt.want)
				}
				break
			}
			if call != nil {
				if m := call.wait(); m.Error == nil {
					if res := decode[execResult](t, string(m.Result)); res.ExitCode != tt.code {
						t.Errorf("%+v, want exit code %d", res, tt.code)
					}
				} else if tt.want != api.StateRemoved {
					t.Error(m.Error)
				}
			}
			if tt.want == api.Paused {
				if res := a.exec(sb, "echo back"); res.Stdout != "back\n" {
					t.Errorf("%+v", res)
				}
			}
			if tt.want != api.StateRemoved {
				a.call(nil, "sandbox.remove", params{"sandbox": sb})
			}
		})
	}
	for _, bad := range []params{{"ttl_s": 1, "ttl_action": "sleep"}, {"idle_action": "pause"}} {
		bad["image"] = "host"
		a.refused("invalid_argument", "sandbox.create", bad)
	}
}

// TestLifeCrowd: fifty sandboxes whose time is over at once leave nothing behind.
func TestLifeCrowd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	actions := []string{"pause", "stop", "kill", "remove", "remove"}
	var boxes []string
	calls := make([]*pending, 50)
	for i := range calls {
		// The pause comes first, and the end of the paused ones as well.
		calls[i] = c.start("sandbox.create", params{
			"image": "host", "ttl_s": 4, "idle_s": 1, "idle_action": actions[i%len(actions)],
		})
	}
	for _, call := range calls {
		m := call.wait()
		if m.Error != nil {
			t.Fatal(m.Error)
		}
		boxes = append(boxes, decode[api.Sandbox](t, string(m.Result)).ID)
	}
	w.awaitNoSandbox(t)
	awaitEmpty(t, filepath.Join(w.root(), "data/shelf/boxes"), time.Now().Add(patience)) // those that were stopped first
	for _, sb := range boxes {
		c.refused("not_found", "sandbox.get", params{"sandbox": sb})
	}
}
