package exec_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// execOf runs a shell command with more params.
func execOf(c *world.Conn, sandbox, command string, more world.Params) world.ExecResult {
	c.T.Helper()
	p := world.Params{"sandbox": sandbox, "command": command}
	for k, v := range more {
		p[k] = v
	}
	var res world.ExecResult
	c.Call(&res, "exec.run", p)
	return res
}

// TestTimeouts: which commands have a timeout that did not ask for one, and what
// is the most that may be asked for.
func TestTimeouts(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "exec: {timeout_s: 0.4, max_timeout_s: 60}\n")
	c := w.Dial(t)
	var info struct {
		Exec struct {
			TimeoutS    float64 `json:"timeout_s"`
			MaxTimeoutS float64 `json:"max_timeout_s"`
		}
	}
	if c.Call(&info, "system.info", world.Params{}); info.Exec.TimeoutS != 0.4 || info.Exec.MaxTimeoutS != 60 {
		t.Errorf("%+v", info)
	}
	plain, own := c.SandboxOf(nil), c.SandboxOf(world.Params{"limits": world.Params{"timeout_s": 0.2}})

	// The daemon's default, of run and of start alike.
	if res := c.Exec(plain, "sleep 4242"); res.Verdict != "timeout_wall" || !res.TimedOut || res.Signal != "SIGKILL" ||
		res.DurationMS < 400 {
		t.Errorf("%+v", res)
	}
	if res := c.Waited(c.Started(plain, "sleep 4242", nil)); res.Verdict != "timeout_wall" {
		t.Errorf("%+v", res)
	}
	// The exec's own.
	if res := execOf(c, plain, "sleep 1", world.Params{"timeout_s": 60}); res.Verdict != "ok" {
		t.Errorf("%+v", res)
	}
	// In the background there is none, unless the sandbox or the exec has one.
	free := c.Started(plain, "sleep 1", world.Params{"background": true})
	zero := c.Started(own, "sleep 1", world.Params{"background": true, "timeout_s": 0})
	long := c.Started(own, "sleep 1", world.Params{"background": true, "timeout_s": 7200})
	bound := c.Started(own, "sleep 4242", world.Params{"background": true})
	for exec, want := range map[string]string{free: "ok", zero: "ok", long: "ok", bound: "timeout_wall"} {
		if res := c.Waited(exec); res.Verdict != want {
			t.Errorf("want %s: %+v", want, res)
		}
	}
	for _, bad := range []world.Params{{"timeout_s": 0}, {"timeout_s": 60.5}} {
		bad["sandbox"], bad["command"] = plain, "true"
		for _, method := range []string{"exec.run", "exec.start"} {
			if e := c.Refused("invalid_argument", method, bad); e.Data.Field != "timeout_s" {
				t.Errorf("%s %v: %+v", method, bad, e)
			}
		}
	}
	over := world.Params{"image": "host", "limits": world.Params{"timeout_s": 61}}
	e := c.Refused("invalid_argument", "sandbox.create", over)
	if e.Data.Field != "limits.timeout_s" || !strings.Contains(e.Data.Hint, "60 seconds") ||
		!strings.Contains(e.Data.Hint, "exec.max_timeout_s") {
		t.Errorf("%+v", e)
	}
	// A terminal's session outlives the default.
	p, cmd := w.Terminal(t, "exec", "-it", plain, "sh", "-c", "sleep 1; echo lived")
	if code, shown := world.Await(t, cmd), p.Rest(); code != 0 || shown != "lived\r\n" {
		t.Errorf("terminal: %d, %q", code, shown)
	}
}

// TestConfigRefused: a configuration that is not understood is no daemon.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "exec: {max_timeout: 60}\n")
	w.Run(t, "run", "--", "true").Want(t, 125).Says(t, "read configuration", "max_timeout not found", "try: ",
		"exec.max_timeout_s")
}

// TestVerdicts: how a command ended, each with a twin that stays within its limit.
func TestVerdicts(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	limits := func(l world.Params) world.Params { return world.Params{"limits": l} }
	const (
		burn = "/usr/bin/python3 -c 'import time\nwhile time.process_time() < 60: pass'"
		file = "head -c 20000 /dev/zero >/tmp/f"
		// A call by i386's entry: int 0x80, which seccomp answers with SIGSYS.
		foreign = `/usr/bin/python3 -c '
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()'`
	)
	for _, tt := range []struct {
		name, command string
		more          world.Params
		verdict       string
	}{
		{"ok", "true", nil, "ok"},
		{"nonzero", "exit 3", nil, "nonzero"},
		{"signal", "kill -SEGV $$", nil, "signal"},
		{"wall", "sleep 4242", world.Params{"timeout_s": 0.3}, "timeout_wall"},
		{"cpu", "exec " + burn, limits(world.Params{"cpu_time_s": 0.3}), "timeout_cpu"},
		{"cpu of a child", burn + "; true", limits(world.Params{"cpu_time_s": 0.3}), "timeout_cpu"},
		{"cpu allowed", "sleep 0.5", limits(world.Params{"cpu_time_s": 0.3}), "ok"},
		{"output", "yes", limits(world.Params{"output_bytes": 100000}), "output"},
		{
			"output of both", "head -c 60 /dev/zero; head -c 60 /dev/zero >&2",
			limits(world.Params{"output_bytes": 100}), "output",
		},
		{"output allowed", "head -c 60 /dev/zero; head -c 40 /dev/zero >&2",
			limits(world.Params{"output_bytes": 100}), "ok"},
		{"disk", file, limits(world.Params{"rlimits": world.Params{"fsize": world.Params{"soft": 10000}}}), "disk"},
		{"disk allowed", file, limits(world.Params{"rlimits": world.Params{"fsize": world.Params{"soft": 20000}}}),
			"ok"},
		{"denied", foreign, nil, "denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.verdict == "denied" {
				testenv.Arch(t, "amd64") // whose machine code it is
			}
			res := execOf(c, sb, tt.command, tt.more)
			if res.Verdict != tt.verdict || res.TimedOut != strings.HasPrefix(tt.verdict, "timeout") {
				t.Errorf("%+v", res)
			}
			if tt.verdict == "timeout_cpu" && (res.Peaks.CPUMS < 300 || res.DurationMS > 15000) {
				t.Errorf("%v", res)
			}
		})
	}
	exec := c.Started(sb, "sleep 4242", nil)
	var res world.ExecResult
	if c.Call(&res, "exec.kill", world.Params{"exec": exec}); res.Verdict != "killed" || len(res.Killed) == 0 {
		t.Errorf("%+v", res)
	}
	if c.Exec(sb, "sleep 0.01"); w.Daemon(t).Monitor == 0 {
		t.Error("no daemon")
	}
	free := c.SandboxOf(world.Params{"limits": world.Params{"disk_bytes": -1}})
	if res := c.Exec(free, "kill -XFSZ $$"); res.Verdict != "signal" {
		t.Errorf("a file too large without a limit: %+v", res)
	}
}

// TestVerdictsOfSandbox: limits of the whole sandbox, of which its cgroups tell.
func TestVerdictsOfSandbox(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	// In large pieces: a machine that is emulated, and busy, grows what is in one piece by a megabyte at a time for a
	// long time.
	const eat = "/usr/bin/python3 -c 'b = []\nfor _ in range(%s): b.append(b\"x\" * (4 << 20))'"
	more := world.Params{"image": "host", "limits": world.Params{"memory_bytes": 100 << 20, "pids": 30}}
	if !world.Grouped() {
		c.Refused("unavailable", "sandbox.create", more)
		return
	}
	sb := c.SandboxOf(world.Params{"limits": more["limits"]})
	for _, tt := range []struct{ name, command, verdict string }{
		{"memory", "exec " + strings.Replace(eat, "%s", "100", 1), "oom"},
		{"memory of a child", strings.Replace(eat, "%s", "100", 1), "oom"},
		{"memory of a child that its parent expects", strings.Replace(eat, "%s", "100", 1) + "; true", "ok"},
		{"memory allowed", strings.Replace(eat, "%s", "5", 1), "ok"},
		{"a kill that is not the kernel's", "kill -KILL $$", "signal"},
		{"processes", "/usr/bin/python3 -c 'import os\nr, w = os.pipe()\nfor _ in range(60):\n  if not os.fork(): os.close(w); os.read(r, 1); os._exit(0)'", "pids"},
		{"processes allowed", "sleep 0.01 & sleep 0.01 & wait", "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if res := execOf(c, sb, tt.command,
				world.Params{"timeout_s": int(world.Patience.Seconds())}); res.Verdict != tt.verdict {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestExecLimits: memory, processes and CPUs of one command, where the hierarchy of
// its cgroup has the controllers; elsewhere they are refused with a way out.
func TestExecLimits(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	var sb struct {
		ID        string
		Isolation struct{ Cgroups string }
	}
	c.Call(&sb, "sandbox.create", world.Params{"image": "host"})
	eat := func(mb int) string {
		return fmt.Sprintf("exec /usr/bin/python3 -c 'b = bytearray()\nfor _ in range(%d): b += bytes(1 << 20)'", mb)
	}
	const forks = "exec /usr/bin/python3 -c 'import os\nr, w = os.pipe()\nfor _ in range(9):\n  if not os.fork(): os.close(w); os.read(r, 1); os._exit(0)'"
	if sb.Isolation.Cgroups != "v2" {
		for _, limit := range []world.Params{{"memory_bytes": 64 << 20}, {"pids": 9}, {"cpus": 0.5}} {
			c.Refused("unavailable", "exec.run", world.Params{"sandbox": sb.ID, "command": "true", "limits": limit})
		}
		return
	}
	for _, tt := range []struct {
		command string
		limits  world.Params
		verdict string
	}{
		{eat(300), world.Params{"memory_bytes": 100 << 20}, "oom"},
		{eat(300), nil, "ok"},
		{eat(20), world.Params{"memory_bytes": 100 << 20}, "ok"},
		{forks, world.Params{"pids": 5}, "pids"},
		{forks, world.Params{"pids": 20}, "ok"},
		{cpuShare, world.Params{"cpus": 0.2}, "ok"},
	} {
		res := execOf(c, sb.ID, tt.command, world.Params{"limits": tt.limits, "timeout_s": 100})
		if res.Verdict != tt.verdict {
			t.Errorf("%v: %+v", tt.limits, res)
		}
		if tt.limits["cpus"] != nil {
			wantShare(t, res)
		}
	}
}

// cpuShare prints which part of a CPU it gets when it wants all of one: for two seconds, 20
// periods of the quota.
const cpuShare = `exec /usr/bin/python3 -c '
import time
t, c = time.monotonic(), time.process_time()
while time.monotonic() < t + 2: pass
print((time.process_time() - c) / (time.monotonic() - t))'`

// wantShare checks what cpuShare printed behind a limit of a fifth of a CPU. How much of that
// it gets is the machine's business: a busy one has less to give (make bench).
func wantShare(t *testing.T, res world.ExecResult) {
	t.Helper()
	share, err := strconv.ParseFloat(strings.TrimSpace(res.Stdout), 64)
	if t.Logf("share of a CPU: %.3f", share); err != nil || share > 0.2*1.15 {
		t.Errorf("%v of a CPU, want a fifth: %+v", share, res)
	}
}

// TestLimitFlags: the limits of a command on the command line.
func TestLimitFlags(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	id := w.Create(t, "--ulimit", "nofile=77:99", "--ulimit", "core=0", "host")
	const show = "ulimit -Sn; ulimit -Hn; ulimit -c"
	if got := w.OK(t, "exec", id, "sh", "-c", show); got != "77\n99\n0\n" {
		t.Errorf("of the sandbox: %q", got)
	}
	if got := w.OK(t, "exec", "--ulimit", "nofile=66", id, "sh", "-c", show); got != "66\n66\n0\n" {
		t.Errorf("of the exec: %q", got)
	}
	w.Run(t, "exec", "--ulimit", "nofile=99999999", id, "true").Want(t, 125).Says(t, "--ulimit nofile: ", "at most")
	w.Run(t, "exec", "--cpu-time", "0.3", id, "sh", "-c", "while :; do :; done").Want(t, 124).
		Says(t, "CPU time", "--cpu-time")
	w.Run(t, "exec", "--output-limit", "1k", id, "true").Want(t, 125).Says(t, "--output-limit: ", "--json or -d")
	// A terminal that is kept is counted.
	terminal := world.Decode[api.StartResult](t, w.OK(t, "rpc", "exec.start", fmt.Sprintf(
		`{"sandbox": %q, "command": "yes", "pty": {"rows": 24, "cols": 80}, "limits": {"output_bytes": 100000}}`, id)))
	res := world.Decode[api.ExecResult](t,
		w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec": %q, "output_bytes": 10}`, terminal.Exec)))
	if res.Verdict != api.VerdictOutput {
		t.Errorf("a terminal: %+v", res)
	}
	w.Run(t, "exec", "--json", "--output-limit", "1k", id, "yes").Want(t, 137)
	w.Run(t, "exec", "--timeout", "0", id, "true").Want(t, 125).Says(t, "--timeout: ", "-d")
	w.Run(t, "exec", "--timeout", "2h", id, "true").Want(t, 125).Says(t, "1800 seconds", "exec.max_timeout_s")
	id = strings.TrimSpace(w.OK(t, "run", "-d", "--timeout", "2h", "host", "true"))
	w.OK(t, "rm", "-f", id)
	p, cmd := w.Terminal(t, "run", "-t", "--timeout", "1", "host", "sleep", "4242")
	if code := world.Await(t, cmd); code != 124 {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	w.Run(t, "run", "--timeout", "2h", "host", "true").Want(t, 125).Says(t, "--timeout: ")
	w.Run(t, "run", "--timeout", "0", "host", "true").Want(t, 125).Says(t, "--timeout 0")
}
