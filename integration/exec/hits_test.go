package exec_test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// limitHit is the part of a result that explains its verdict.
type limitHit struct {
	Verdict string
	Limit   *struct {
		Name, Of, Hint string
		Limit, Peak    int64
	}
}

// TestLimitsExplained: the verdicts of memory and processes come with limit, peak and a
// way out, and an event tells while the command still runs. Only that sandbox suffers.
func TestLimitsExplained(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	limits := world.Params{"memory_bytes": 64 << 20, "pids": 20, "shm_bytes": 64 << 20}
	var sb limited
	c.Call(&sb, "sandbox.create", world.Params{"image": "host"})
	if sb.Isolation.Cgroups == "none" {
		if os.Geteuid() == 0 {
			t.Error("root has no cgroups")
		}
		c.Refused("unavailable", "sandbox.create", world.Params{"image": "host", "limits": limits})
		return
	}
	neighbour := sb.ID
	id := c.SandboxOf(world.Params{"limits": limits})
	run := func(command string) (hit limitHit) {
		t.Helper()
		c.Call(&hit, "exec.run", world.Params{"sandbox": id, "command": command, "timeout_s": 120})
		return hit
	}
	for name, command := range map[string]string{
		"anonymous": `exec /usr/bin/python3 -c 'bytearray(100 << 20)'`,
		"tmpfs":     `exec /usr/bin/python3 -c 'open("/dev/shm/a", "wb").write(bytes(60 << 20)); bytearray(20 << 20)'`,
	} {
		hit := run(command)
		if l := hit.Limit; hit.Verdict != "oom" || l == nil || l.Name != "memory_bytes" || l.Of != "sandbox" ||
			l.Limit != 64<<20 ||
			l.Peak < 60<<20 || l.Peak > 64<<20 || !strings.Contains(l.Hint, "hutch update -m") {
			t.Errorf("%s: %+v, %+v", name, hit, hit.Limit)
		}
		c.Exec(id, "rm -f /dev/shm/a")
	}
	// The page cache is given back, and kills nobody.
	var fs syscall.Statfs_t
	if err := syscall.Statfs(w.Root(), &fs); err != nil {
		t.Fatal(err)
	}
	const tmpfs = 0x01021994 // what is written there is memory
	if hit := run("dd if=/dev/zero of=/tmp/f bs=1M count=150 status=none && cat /tmp/f >/dev/null && rm /tmp/f"); hit.Verdict != "ok" && fs.Type != tmpfs {
		t.Errorf("page cache: %+v", hit)
	}

	// What is met is reported while the command runs.
	c.Call(nil, "events.subscribe", world.Params{"kinds": []string{"limit.hit"}, "sandbox": id})
	type hitEvent struct {
		Sandbox, Exec string
		Data          struct{ Limit, Detail string }
	}
	told := func() (e hitEvent) {
		t.Helper()
		for {
			if n := c.Note(); n.Method == "event" {
				if err := json.Unmarshal(n.Params, &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
	}
	const parent = `/usr/bin/python3 -c 'bytearray(100 << 20)'; cat`
	var waits struct{ Exec string }
	c.Call(&waits, "exec.start", world.Params{"sandbox": id, "command": parent})
	if e := told(); e.Sandbox != id || e.Exec != waits.Exec || e.Data.Limit != "oom" ||
		!strings.Contains(e.Data.Detail, "67108864") {
		t.Errorf("%+v", e)
	}
	c.Call(nil, "exec.kill", world.Params{"exec": waits.Exec})

	// A fork bomb, of several users.
	const bomb = `exec /usr/bin/python3 -c '
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
failed = 0
while failed < 200:
    try:
        if os.fork() == 0:
            try: os.setuid(os.getpid() % 3 + 1)
            except OSError: pass
    except OSError:
        failed += 1
if os.getpid() == int(sys.argv[1]): sys.exit(1)
signal.pause()' $$`
	var started struct{ Exec string }
	c.Call(&started, "exec.start",
		world.Params{"sandbox": id,
			"command": strings.Replace(bomb, "if os.getpid() == int(sys.argv[1]): sys.exit(1)\n", "", 1)})
	if sb.Isolation.Cgroups == "v2" { // v1 has no notification for it
		if e := told(); e.Exec != started.Exec || e.Data.Limit != "pids" || !strings.Contains(e.Data.Detail, "20") {
			t.Errorf("%+v", e)
		}
	}
	if res := c.Exec(neighbour, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("beside a fork bomb: %+v", res)
	}
	var killed world.ExecResult
	c.Call(&killed, "exec.kill", world.Params{"exec": started.Exec})
	if killed.Verdict != "killed" {
		t.Errorf("%+v", killed)
	}
	hit := run(bomb)
	if l := hit.Limit; hit.Verdict != "pids" || l == nil || l.Name != "pids" || l.Limit != 20 || l.Peak != 20 ||
		!strings.Contains(l.Hint, "--pids-limit") {
		t.Errorf("%+v, %+v", hit, hit.Limit)
	}
	c.Call(nil, "sandbox.remove", world.Params{"sandbox": id})

	w.Run(t, "run", "-m", "64m", "host", "/usr/bin/python3", "-c", "bytearray(100 << 20)").Want(t, 137).
		Says(t, "out of memory", "(-m of the sandbox: 64M", "peak 64M", "-m SIZE")
}

// TestCPULimit: a sandbox with a fifth of a CPU uses no more of it, however many
// processes it has.
func TestCPULimit(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	if statsOf(c, c.SandboxOf(nil)).Source == "processes" {
		c.Refused("unavailable", "sandbox.create", world.Params{"image": "host", "limits": world.Params{"cpus": 0.2}})
		return
	}
	id := c.SandboxOf(world.Params{"limits": world.Params{"cpus": 0.2}})
	const spin = `exec /usr/bin/python3 -c '
import os, time
start = time.monotonic()
for _ in range(3): os.fork()
while time.monotonic() < start + 3: pass
for _ in range(8):
    try: os.wait()
    except OSError: break'`
	before := statsOf(c, id).CPU.UsedMS
	res := c.Exec(id, spin)
	used := statsOf(c, id).CPU.UsedMS - before
	t.Logf("share of a CPU: %.3f", used/res.DurationMS)
	// In each period of 100 ms at most a fifth of it; one more at either end.
	if most := 0.2*1.15*res.DurationMS + 40; res.Verdict != "ok" || used > most {
		t.Errorf("%v ms of CPU time in %v ms, want at most %v: %+v", used, res.DurationMS, most, res)
	}
}
