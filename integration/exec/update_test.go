package exec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// limited is what a record says about limits.
type limited struct {
	ID     string
	PID    int
	Limits struct {
		CPUs        float64
		MemoryBytes int64 `json:"memory_bytes"`
		PIDs        int64
	}
	Unenforced []struct {
		Limit, Why, Instead string
		Value               float64
		Default             bool
	}
	Isolation struct{ Cgroups string }
}

// stats is sandbox.stats's result.
type stats struct {
	Sandbox, Name, Source string
	CPU                   *struct {
		UsedMS float64 `json:"used_ms"`
	}
	Memory *struct {
		CurrentBytes int64 `json:"current_bytes"`
		PeakBytes    int64 `json:"peak_bytes"`
		AnonBytes    int64 `json:"anon_bytes"`
		LimitBytes   int64 `json:"limit_bytes"`
		OOMKills     int64 `json:"oom_kills"`
	}
	PIDs *struct {
		Current, Limit, Refused int64
	}
	IO       *struct{}
	Pressure *struct {
		CPU *struct {
			Some struct {
				TotalMS float64 `json:"total_ms"`
			}
		}
	}
	Execs int `json:"running_execs"`
}

func statsOf(c *world.Conn, sandbox string) (st stats) {
	c.T.Helper()
	c.Call(&st, "sandbox.stats", world.Params{"sandbox": sandbox})
	return st
}

// TestUpdate: limits of a sandbox that runs change at once, all of them or none; where
// there are no cgroups those that need them are refused, and the others change.
func TestUpdate(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	var sb limited
	c.Call(&sb, "sandbox.create", world.Params{"image": "host", "limits": world.Params{"timeout_s": 60}})
	update := func(limits world.Params) world.Params { return world.Params{"sandbox": sb.ID, "limits": limits} }

	for field, limits := range map[string]world.Params{
		"limits":              {},
		"limits.cpus":         {"cpus": -2},
		"limits.memory_bytes": {"memory_bytes": 1 << 20},
		"limits.pids":         {"pids": 1 << 30},
		"limits.timeout_s":    {"timeout_s": 1e9},
		"limits.best_effort":  {"best_effort": true},
		"limits.cpuset":       {"cpuset": "1-0"},
	} {
		if e := c.Refused("invalid_argument", "sandbox.update", update(limits)); e.Data.Field != field ||
			e.Data.Hint == "" {
			t.Errorf("%v: %+v", limits, e)
		}
	}
	c.Refused("invalid_argument", "sandbox.update", world.Params{"sandbox": sb.ID, "ttl_s": -1})
	var life struct{ Expires string }
	if c.Call(&life, "sandbox.update", world.Params{"sandbox": sb.ID, "ttl_s": 3600}); life.Expires == "" {
		t.Error("no end of its life")
	}
	if c.Call(&life, "sandbox.update", world.Params{"sandbox": sb.ID, "ttl_s": 0}); life.Expires != "" {
		life = struct{ Expires string }{}
		if c.Call(&life, "sandbox.get", world.Params{"sandbox": sb.ID}); life.Expires != "" {
			t.Errorf("its life still ends %s", life.Expires)
		}
	}
	for _, limits := range []world.Params{{"cpus": 4096}, {"memory_bytes": 1 << 60}, {"cpuset": "4095"}} {
		c.Refused("invalid_argument", "sandbox.update", update(limits))
		c.Refused("invalid_argument", "sandbox.create", world.Params{"image": "host", "limits": limits})
	}
	c.Refused("not_found", "sandbox.update", world.Params{"sandbox": "nobody", "limits": world.Params{"pids": 3}})

	// Of commands that start later.
	c.Call(&sb, "sandbox.update",
		update(world.Params{"timeout_s": testenv.Patience(300 * time.Millisecond).
			Seconds(), "rlimits": world.Params{"nofile": world.Params{"soft": 77}}}))
	if res := c.Exec(sb.ID, "ulimit -n; sleep 4242"); res.Verdict != "timeout_wall" || res.Stdout != "77\n" {
		t.Errorf("%+v", res)
	}
	c.Call(&sb, "sandbox.update", update(world.Params{"timeout_s": 60}))

	if sb.Isolation.Cgroups == "none" {
		if e := c.Refused("unavailable", "sandbox.update",
			update(world.Params{"pids": 10})); e.Data.Field != "limits.pids" ||
			!strings.Contains(e.Data.Hint, "best_effort") {
			t.Errorf("%+v", e)
		}
		return
	}
	// Of all processes together, also of those that run.
	world.NeedsPython(t)
	const hold = `exec /usr/bin/python3 -c 'b = bytearray(40 << 20); print(len(b), flush=True); input()'`
	var started struct{ Exec string }
	c.Call(&started, "exec.start", world.Params{"sandbox": sb.ID, "command": hold})
	c.Call(nil, "exec.read", world.Params{"exec": started.Exec, "stream": "stdout", "offset": 0, "wait_s": 60})
	if e := c.Refused("failed_precondition", "sandbox.update",
		update(world.Params{"memory_bytes": 32 << 20, "pids": 3})); e.Data.Field != "limits.memory_bytes" {
		t.Errorf("%+v", e)
	}
	if st := statsOf(c, sb.ID); st.PIDs.Limit == 3 {
		t.Error("half of a refused update is in force")
	}
	c.Call(&sb, "sandbox.update", update(world.Params{"memory_bytes": 128 << 20, "pids": 5, "cpus": 0.5}))
	if l := sb.Limits; l.MemoryBytes != 128<<20 || l.PIDs != 5 || l.CPUs != 0.5 {
		t.Errorf("%+v", sb)
	}
	fork := func(n int) string {
		return fmt.Sprintf("exec /usr/bin/python3 -c 'import os\nr, w = os.pipe()\nfor _ in range(%d):\n  if not os.fork(): os.close(w); os.read(r, 1); os._exit(0)'", n)
	}
	if res := c.Exec(sb.ID, fork(9)); res.Verdict != "pids" {
		t.Errorf("%+v", res)
	}
	var free limited // a new one: what is 0 is left out
	c.Call(&free, "sandbox.update", update(world.Params{"pids": -1}))
	if res := c.Exec(sb.ID, fork(9)); res.Verdict != "ok" || free.Limits.PIDs != 0 ||
		free.Limits.MemoryBytes != 128<<20 {
		t.Errorf("%+v, %+v", res, free)
	}
	// The memory that it was given, by a command that needs it, and taken again.
	const eat = `exec /usr/bin/python3 -c 'bytearray(150 << 20)'`
	if res := c.Exec(sb.ID, eat); res.Verdict != "oom" {
		t.Errorf("%+v", res)
	}
	c.Call(&sb, "sandbox.update", update(world.Params{"memory_bytes": 300 << 20}))
	if res := c.Exec(sb.ID, eat); res.Verdict != "ok" {
		t.Errorf("%+v", res)
	}
	c.Call(nil, "sandbox.kill", world.Params{"sandbox": sb.ID})
	c.Refused("failed_precondition", "sandbox.update", update(world.Params{"pids": 10}))
	c.Refused("failed_precondition", "sandbox.stats", world.Params{"sandbox": sb.ID})
}

// TestStats: what a sandbox uses, on hosts with and without cgroups.
func TestStats(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	id := c.SandboxOf(world.Params{"name": "web"})
	const work = `exec /usr/bin/python3 -c 'import time
b = bytearray(30 << 20)
while time.process_time() < 0.3: pass
print("ready", flush=True)
input()'`
	before := statsOf(c, "web")
	if before.Sandbox != id || before.Name != "web" || before.Execs != 0 || before.PIDs.Current != 0 {
		t.Errorf("%+v", before)
	}
	var started struct {
		Exec string
		PID  int
	}
	c.Call(&started, "exec.start", world.Params{"sandbox": id, "command": work})
	c.Call(nil, "exec.read", world.Params{"exec": started.Exec, "stream": "stdout", "offset": 0, "wait_s": 60})
	st := statsOf(c, id)
	if used := st.CPU.UsedMS - before.CPU.UsedMS; used < 290 || st.Execs != 1 || st.PIDs.Current != 1 ||
		st.Memory.AnonBytes < 30<<20 || st.Memory.CurrentBytes < st.Memory.AnonBytes {
		t.Errorf("%+v", st)
	}
	var all struct {
		Processes []struct {
			PID, PPID int
			HostPID   int `json:"host_pid"`
			State     string
			Argv      []string
			CPUMS     float64 `json:"cpu_ms"`
			RSSBytes  int64   `json:"rss_bytes"`
		}
	}
	c.Call(&all, "sandbox.processes", world.Params{"sandbox": id})
	if len(all.Processes) != 2 || all.Processes[0].PID != 1 || all.Processes[1].PID != started.PID ||
		all.Processes[1].PPID != 1 ||
		all.Processes[1].RSSBytes < 30<<20 || all.Processes[1].Argv[0] != "/usr/bin/python3" {
		t.Errorf("%+v", all)
	}
	if cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(all.Processes[1].HostPID),
		"cmdline")); err != nil || !strings.HasPrefix(string(cmdline), "/usr/bin/python3") {
		t.Errorf("process %d outside is %q (%v)", all.Processes[1].HostPID, cmdline, err)
	}
	switch st.Source {
	case "cgroup-v1", "cgroup-v2":
		if st.Memory.PeakBytes < st.Memory.AnonBytes || st.Memory.LimitBytes == 0 || st.PIDs.Limit != 1024 {
			t.Errorf("%+v", st)
		}
		if _, err := os.Stat("/proc/pressure/cpu"); err == nil && st.Pressure == nil {
			t.Errorf("no pressure: %+v", st)
		}
	case "processes":
	default:
		t.Errorf("%+v", st)
	}

	// The command line's.
	w.Run(t, "stats", "--no-stream").Want(t, 0).Says(t)
	table := w.OK(t, "stats", "-n", "web")
	if !strings.Contains(table, "PRESSURE") || !strings.Contains(table, id) {
		t.Errorf("%s", table)
	}
	var line stats
	if err := json.Unmarshal([]byte(w.OK(t, "stats", "-n", "--json", "web")), &line); err != nil || line.Sandbox != id {
		t.Errorf("%+v, %v", line, err)
	}
	if top := w.OK(t, "top", "web"); !strings.Contains(top, "python3") || !strings.Contains(top, "HOST PID") {
		t.Errorf("%s", top)
	}
	if top := w.OK(t, "top"); !strings.Contains(top, id) {
		t.Errorf("%s", top)
	}
	w.Run(t, "stats", "-n", "nobody").Want(t, 125).Says(t, "nobody")
}

// TestBestEffort: limits that this host cannot enforce are refused, unless what can be
// had is enough; the record says what that is. Defaults are no promise.
func TestBestEffort(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	var plain, sb limited
	c.Call(&plain, "sandbox.create", world.Params{"image": "host"})
	c.Call(&sb, "sandbox.create",
		world.Params{"image": "host", "limits": world.Params{"best_effort": true, "memory_bytes": 128 << 20, "pids": 20,
			"cpus": 0.5}})
	if sb.Isolation.Cgroups != "none" {
		if len(sb.Unenforced) != 0 || len(plain.Unenforced) != 0 || plain.Limits.PIDs != 1024 ||
			plain.Limits.MemoryBytes == 0 {
			t.Errorf("%+v, %+v", sb, plain)
		}
		return
	}
	for _, u := range plain.Unenforced {
		if !u.Default || u.Why == "" {
			t.Errorf("%+v", plain)
		}
	}
	missing := map[string]float64{}
	for _, u := range sb.Unenforced {
		if missing[u.Limit] = u.Value; u.Default || u.Why == "" {
			t.Errorf("%+v", u)
		}
	}
	if len(missing) != 3 || missing["pids"] != 20 || missing["memory_bytes"] != 128<<20 || missing["cpus"] != 0.5 ||
		sb.Limits.PIDs+sb.Limits.MemoryBytes != 0 {
		t.Errorf("%+v", sb)
	}
	// What stands in: data of each process, processes of each user.
	if res := c.Exec(sb.ID, `exec /usr/bin/python3 -c 'bytearray(200 << 20)'`); res.ExitCode == 0 {
		t.Errorf("%+v", res)
	}
	if res := c.Exec(sb.ID, `exec /usr/bin/python3 -c 'bytearray(50 << 20)'`); res.ExitCode != 0 {
		t.Errorf("%+v", res)
	}
	if res := c.Exec(sb.ID, "ulimit -u 2>/dev/null || ulimit -p"); strings.TrimSpace(res.Stdout) != "20" {
		t.Errorf("%+v", res)
	}
	w.Run(t, "run", "--best-effort", "-m", "64m", "host", "true").Want(t, 0).
		Says(t, "warning", "--memory is not enforced", "RLIMIT_DATA")
	w.Run(t, "run", "-m", "64m", "host", "true").Want(t, 125).Says(t, "-m cannot be enforced", "--best-effort")
}

// TestConfigReload: the daemon reads its configuration again when it is told to, and a
// file that is not understood changes nothing. Quotas hold from then on.
func TestConfigReload(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	var info struct {
		PID  int
		Exec struct {
			TimeoutS float64 `json:"timeout_s"`
		}
		Quotas struct{ Sandboxes int }
	}
	c.Call(nil, "events.subscribe", world.Params{"kinds": []string{"config.reloaded"}})
	first := c.SandboxOf(nil)
	w.Configure(t, "exec: {timeout_s: 60}\nquotas: {sandboxes: 2}\n")
	w.OK(t, "config", "check")
	w.OK(t, "config", "reload")
	if c.Call(&info, "system.info", world.Params{}); info.Exec.TimeoutS != 60 || info.Quotas.Sandboxes != 2 {
		t.Errorf("%+v", info)
	}
	c.SandboxOf(nil)
	if e := c.Refused("resource_exhausted", "sandbox.create",
		world.Params{"image": "host"}); !strings.Contains(e.Message, "quotas.sandboxes") || e.Data.Hint == "" {
		t.Errorf("%+v", e)
	}
	c.Call(nil, "sandbox.remove", world.Params{"sandbox": first})
	c.SandboxOf(nil)

	w.Configure(t, "exec:\n  timeout_s: 5\n  timeout: 6\n")
	w.Run(t, "config", "check").Want(t, 125).Says(t, "line 3", "exec.timeout not found", "exec.timeout_s meant")
	w.Run(t, "config", "reload").Want(t, 125).Says(t, "line 3", "exec.timeout not found")
	if c.Call(&info, "system.info", world.Params{}); info.Exec.TimeoutS != 60 {
		t.Errorf("%+v", info)
	}
	// By a signal, which an event answers.
	w.Configure(t, "quotas: {cpus: 0.5, memory_bytes: 64m}\n")
	p, err := os.FindProcess(info.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var told []string
	for len(told) < 3 {
		n := c.Note()
		if n.Method == "event" {
			told = append(told, string(n.Params))
		}
	}
	if !strings.Contains(told[1], "line 3") || strings.Contains(told[0], "error") ||
		strings.Contains(told[2], "error") {
		t.Errorf("%q", told)
	}
	if e := c.Refused("resource_exhausted", "sandbox.create",
		world.Params{"image": "host"}); !strings.Contains(e.Message, "quotas.cpus") {
		t.Errorf("%+v", e)
	}
}
