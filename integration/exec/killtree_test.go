package exec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestKillTree: a kill ends all that a command started, and names it; what an
// older and a younger command started in the same way is left alone.
func TestKillTree(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	// Double fork, a session of its own, no parent left.
	const away = `/usr/bin/python3 -c '
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(w, b"x")
        time.sleep(4242)
    os._exit(0)
os.wait()
os.read(r, 1)
'; `
	pidOf := func(exec string) string {
		t.Helper()
		var got chunk
		c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": 0,
			"wait_s": world.Patience.Seconds()})
		if got.Data == "" { // no process has this number: it would be dead, and another's fault
			testenv.Late(t, "%s has not said the number of its process within %v", exec, world.Patience)
		}
		return strings.TrimSpace(got.Data)
	}
	alive := func(pid string) bool { // and no zombie that PID 1 is about to reap
		t.Helper()
		return c.Exec(sb, "kill -0 "+pid+" && ! grep -q '^State:.Z' /proc/"+pid+"/status").ExitCode == 0
	}
	killed := func(exec, method string, p world.Params) world.ExecResult {
		t.Helper()
		p["exec"] = exec
		var res world.ExecResult
		c.Call(&res, method, p)
		return res
	}
	background := func(command string, more world.Params) string {
		more["background"] = true
		return c.Started(sb, command, more)
	}
	older := background(away+"exec sleep 4242", world.Params{})
	olderPID := pidOf(older)
	victim := background(away+"exec sleep 4242", world.Params{})
	pid := pidOf(victim)
	timed := background(away+"exec sleep 4242", world.Params{"timeout_s": testenv.Patience(time.Second).Seconds()})
	timedPID := pidOf(timed)
	left := background(away, world.Params{}) // ends, and leaves its child
	leftPID := pidOf(left)
	if res := c.Waited(left); res.Verdict != "ok" || !alive(leftPID) {
		t.Errorf("%+v", res)
	}

	res := killed(victim, "exec.kill", world.Params{})
	if res.Verdict != "killed" || res.Signal != "SIGKILL" || len(res.Killed) < 2 && world.Grouped() {
		t.Errorf("%+v", res)
	}
	if alive(pid) == world.Grouped() || world.Grouped() && !slices.Contains(texts(res.Killed), pid) {
		// Without cgroups nothing tells whose an orphan is while an older exec runs.
		t.Errorf("process %s lives %v, with cgroups %v: %+v", pid, alive(pid), world.Grouped(), res)
	}
	if res := c.Waited(timed); res.Verdict != "timeout_wall" || alive(timedPID) == world.Grouped() {
		t.Errorf("process %s: %+v", timedPID, res)
	}
	// What an exec that has ended left behind is killed by its id, too.
	if res := killed(left, "exec.kill", world.Params{}); res.Verdict != "ok" || world.Grouped() &&
		!slices.Contains(texts(res.Killed), leftPID) {
		t.Errorf("%+v", res)
	}
	if world.Grouped() && alive(leftPID) {
		t.Errorf("process %s outlived the kill of its exec", leftPID)
	}
	if res := killed(left, "exec.kill", world.Params{}); len(res.Killed) != 0 {
		t.Errorf("killed twice: %+v", res)
	}
	if !alive(olderPID) {
		t.Error("a kill reached another exec")
	}
	// The oldest exec of all can be told from others in any case.
	if res := killed(older, "exec.kill", world.Params{}); res.Verdict != "killed" || alive(olderPID) &&
		world.Grouped() {
		t.Errorf("%+v", res)
	}
	// A bomb, under way: every process of it is in the exec's cgroup.
	bomb := c.Started(sb, "f() { f | f & }; f; exec sleep 4242",
		world.Params{"background": true,
			"limits": world.Params{"rlimits": world.Params{"nproc": world.Params{"soft": 200}}}})
	if res := killed(bomb, "exec.kill", world.Params{}); res.Verdict != "killed" {
		t.Errorf("%+v", res)
	}
	if res := c.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

// TestKillTraced: a debugger in another exec cannot keep what it traces from being
// killed, although only it may collect the body (ptrace(2)).
func TestKillTraced(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	var traced struct {
		Exec string
		PID  int
	}
	c.Call(&traced, "exec.start", world.Params{"sandbox": sb, "command": "exec sleep 4242", "background": true})
	const seize = 0x4206 // PTRACE_SEIZE
	tracer := c.Started(sb, fmt.Sprintf(`exec /usr/bin/python3 -c '
import ctypes, time
print(ctypes.CDLL(None).ptrace(%d, %d, None, None), flush=True)
time.sleep(4242)'`, seize, traced.PID), world.Params{"background": true})
	var said chunk
	if c.Call(&said, "exec.read", world.Params{"exec": tracer, "stream": "stdout", "offset": 0,
		"wait_s": 20}); said.Data != "0\n" {
		t.Fatalf("ptrace: %+v", said)
	}
	start := time.Now()
	var res world.ExecResult
	if c.Call(&res, "exec.kill", world.Params{"exec": traced.Exec}); res.Verdict != "killed" ||
		!slices.Contains(res.Killed, traced.PID) {
		t.Errorf("%+v", res)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("the kill took %v, about as long as hutchd is patient", took)
	}
	if res := c.Waited(tracer); res.Verdict != "signal" {
		t.Errorf("the debugger: %+v", res)
	}
	if res := c.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

// TestKillStorm: a command that kills all it can see, and forks as fast as it can,
// ends others' commands but not the sandbox, and is ended like any other.
func TestKillStorm(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	storm := c.Started(sb, `exec /usr/bin/python3 -c '
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork(): os._exit(0)
            signal.pause()
        os.kill(-1, signal.SIGKILL)
    except OSError: pass
'`, world.Params{"background": true})
	var said chunk
	c.Call(&said, "exec.read", world.Params{"exec": storm, "stream": "stdout", "offset": 0, "wait_s": 20})
	for range 20 {
		// Each may be hit, before or after it has started.
		m := c.Start("exec.run", world.Params{"sandbox": sb, "command": "echo lived", "timeout_s": 10}).Wait()
		var res world.ExecResult
		if m.Error == nil &&
			(json.Unmarshal(m.Result, &res) != nil || !slices.Contains([]string{"ok", "signal"}, res.Verdict)) {
			t.Errorf("%s", m.Result)
		}
	}
	var res world.ExecResult
	if c.Call(&res, "exec.kill", world.Params{"exec": storm}); res.Verdict != "killed" || len(res.Killed) == 0 {
		t.Errorf("%+v", res)
	}
	for range 5 {
		if res := c.Exec(sb, "echo calm"); res.Stdout != "calm\n" {
			t.Errorf("%+v", res)
		}
	}
}

// TestExecCgroups: each exec is in a cgroup of its own, in which it sees nothing else;
// an empty one serves the next exec, and none is left once its processes are gone.
func TestExecCgroups(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	var sb struct {
		ID        string
		Isolation struct {
			Walls []struct{ Name, Status string }
		}
	}
	c.Call(&sb, "sandbox.create", world.Params{"image": "host"})
	status := ""
	for _, wall := range sb.Isolation.Walls {
		if wall.Name == "exec cgroups" {
			status = wall.Status
		}
	}
	if want := map[bool]string{true: "yes", false: "no"}[world.Grouped()]; status != want {
		t.Errorf("exec cgroups: %q, want %q", status, want)
	}
	if !world.Grouped() {
		return
	}
	var dirs []string // its cgroups, as the host sees them
	for _, tree := range world.CgroupTrees() {
		dir := filepath.Join(tree, "sandboxes", sb.ID)
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	// below lists the cgroups below the sandbox's.
	below := func() []string {
		t.Helper()
		var names []string
		for _, dir := range dirs {
			entries, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.events"))
			for _, e := range entries {
				names = append(names, filepath.Base(filepath.Dir(e)))
			}
		}
		return names
	}
	// fewest waits until there are no more than that.
	fewest := func(n int) []string {
		t.Helper()
		world.AwaitRemovals(t, dirs, func() bool { return len(below()) <= n })
		return below()
	}
	runsIn := func() string {
		t.Helper()
		_, path, _ := strings.Cut(c.Exec(sb.ID, "grep ^0:: /proc/self/cgroup").Stdout, "0::")
		return strings.TrimSpace(path)
	}
	first := runsIn()
	if !strings.HasPrefix(first, "/ex_") || strings.Count(first, "/") != 1 {
		t.Errorf("inside, the cgroup is %q", first)
	}
	// A kernel may count a process that has been waited for a moment longer: then its cgroup is not used again.
	kept := 0
	for range 20 {
		again := runsIn()
		if again == first {
			kept++
		}
		first = again
	}
	if kept < 10 {
		t.Errorf("of 20 commands one after the other %d were in the cgroup of the one before", kept)
	}
	groups := 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // no cgroup v1
		groups++ // PID 1 has one
	}
	if got := fewest(groups); len(got) != groups || slices.Contains(got, "init") != (groups == 2) {
		t.Errorf("cgroups %v", got)
	}
	// Its processes are counted from its start, and one that another uses is not given.
	if res := c.Exec(sb.ID, "true"); res.Peaks.CPUMS > 500 {
		t.Errorf("%+v", res)
	}
	stays := c.Started(sb.ID,
		"echo $(cut -d: -f3- /proc/self/cgroup | tail -n 1) >/tmp/stays.new; mv /tmp/stays.new /tmp/stays; exec sleep 4242", world.Params{"background": true})
	its := strings.TrimSpace(c.Exec(sb.ID, "until cat /tmp/stays 2>/dev/null; do :; done").Stdout)
	if second := runsIn(); second == its || !strings.HasPrefix(its, "/ex_") {
		t.Errorf("two at once, in %s and %s", its, second)
	}
	var res world.ExecResult
	c.Call(&res, "exec.kill", world.Params{"exec": stays})
	if got := runsIn(); got == its {
		t.Errorf("%s was killed, and is used again", its)
	}
	// The cgroup of what was left behind goes with that.
	c.Exec(sb.ID, "sleep 1 >/dev/null 2>&1 &")
	if got := fewest(groups); len(got) > groups {
		t.Errorf("left: %v", got)
	}
}

// pureV2 says whether these are cgroups of the v2 hierarchy with its controllers, so that
// execs can have limits of their own.
var pureV2 = sync.OnceValue(func() bool {
	var st unix.Statfs_t
	return world.Grouped() && unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
})

func texts(pids []int) []string {
	all := make([]string, 0, len(pids))
	for _, pid := range pids {
		all = append(all, strconv.Itoa(pid))
	}
	return all
}
