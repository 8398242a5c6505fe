package integration_test

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
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
	t.Parallel()
	needsPython(t)
	w := newWorld(t)
	c := w.dial(t)
	limits := params{"memory_bytes": 64 << 20, "pids": 20}
	var sb limited
	c.call(&sb, "sandbox.create", params{"image": "host"})
	if sb.Isolation.Cgroups == "none" {
		if os.Geteuid() == 0 {
			t.Error("root has no cgroups")
		}
		c.refused("unavailable", "sandbox.create", params{"image": "host", "limits": limits})
		return
	}
	neighbour := sb.ID
	id := c.sandboxOf(params{"limits": limits})
	run := func(command string) (hit limitHit) {
		t.Helper()
		c.call(&hit, "exec.run", params{"sandbox": id, "command": command, "timeout_s": 120})
		return hit
	}
	for name, command := range map[string]string{
		"anonymous": `exec /usr/bin/python3 -c 'bytearray(100 << 20)'`,
		"tmpfs":     `exec /usr/bin/python3 -c 'open("/dev/shm/a", "wb").write(bytes(60 << 20)); bytearray(20 << 20)'`,
	} {
		hit := run(command)
		if l := hit.Limit; hit.Verdict != "oom" || l == nil || l.Name != "memory_bytes" || l.Of != "sandbox" || l.Limit != 64<<20 ||
			l.Peak < 60<<20 || l.Peak > 64<<20 || !strings.Contains(l.Hint, "hutch update -m") {
			t.Errorf("%s: %+v, %+v", name, hit, hit.Limit)
		}
		c.exec(id, "rm -f /dev/shm/a")
	}
	// The page cache is given back, and kills nobody.
	var fs syscall.Statfs_t
	if err := syscall.Statfs(w.root(), &fs); err != nil {
		t.Fatal(err)
	}
	const tmpfs = 0x01021994 // what is written there is memory
	if hit := run("dd if=/dev/zero of=/tmp/f bs=1M count=150 status=none && cat /tmp/f >/dev/null && rm /tmp/f"); hit.Verdict != "ok" && fs.Type != tmpfs {
		t.Errorf("page cache: %+v", hit)
	}

	// What is met is told of while the command runs.
	c.call(nil, "events.subscribe", params{"kinds": []string{"limit.hit"}, "sandbox": id})
	type hitEvent struct {
		Sandbox, Exec string
		Data          struct{ Limit, Detail string }
	}
	told := func() (e hitEvent) {
		t.Helper()
		for {
			if n := c.note(); n.Method == "event" {
				if err := json.Unmarshal(n.Params, &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
	}
	const parent = `/usr/bin/python3 -c 'bytearray(100 << 20)'; cat`
	var waits struct{ Exec string }
	c.call(&waits, "exec.start", params{"sandbox": id, "command": parent})
	if e := told(); e.Sandbox != id || e.Exec != waits.Exec || e.Data.Limit != "oom" || !strings.Contains(e.Data.Detail, "67108864") {
		t.Errorf("%+v", e)
	}
	c.call(nil, "exec.kill", params{"exec": waits.Exec})

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
	c.call(&started, "exec.start", params{"sandbox": id, "command": strings.Replace(bomb, "if os.getpid() == int(sys.argv[1]): sys.exit(1)\n", "", 1)})
	if sb.Isolation.Cgroups == "v2" { // v1 has no notification for it
		if e := told(); e.Exec != started.Exec || e.Data.Limit != "pids" || !strings.Contains(e.Data.Detail, "20") {
			t.Errorf("%+v", e)
		}
	}
	if res := c.exec(neighbour, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("beside a fork bomb: %+v", res)
	}
	var killed execResult
	c.call(&killed, "exec.kill", params{"exec": started.Exec})
	if killed.Verdict != "killed" {
		t.Errorf("%+v", killed)
	}
	hit := run(bomb)
	if l := hit.Limit; hit.Verdict != "pids" || l == nil || l.Name != "pids" || l.Limit != 20 || l.Peak != 20 || !strings.Contains(l.Hint, "--pids-limit") {
		t.Errorf("%+v, %+v", hit, hit.Limit)
	}
	c.call(nil, "sandbox.remove", params{"sandbox": id})

	w.run(t, "run", "-m", "64m", "host", "/usr/bin/python3", "-c", "bytearray(100 << 20)").want(t, 137).
		says(t, "out of memory", "limits.memory_bytes of the sandbox: 64M", "peak 64M", "-m SIZE")
}

// TestCPULimit: a sandbox with a fifth of a CPU uses no more of it, however many
// processes it has.
func TestCPULimit(t *testing.T) {
	t.Parallel()
	needsPython(t)
	w := newWorld(t)
	c := w.dial(t)
	if c.stats(c.sandboxOf(nil)).Source == "processes" {
		c.refused("unavailable", "sandbox.create", params{"image": "host", "limits": params{"cpus": 0.2}})
		return
	}
	id := c.sandboxOf(params{"limits": params{"cpus": 0.2}})
	const spin = `exec /usr/bin/python3 -c '
import os, time
start = time.monotonic()
for _ in range(3): os.fork()
while time.monotonic() < start + 3: pass
for _ in range(8):
    try: os.wait()
    except OSError: break'`
	before := c.stats(id).CPU.UsedMS
	res := c.exec(id, spin)
	used := c.stats(id).CPU.UsedMS - before
	t.Logf("share of a CPU: %.3f", used/res.DurationMS)
	// In each period of 100 ms at most a fifth of it; one more at either end.
	if most := 0.2*1.15*res.DurationMS + 40; res.Verdict != "ok" || used > most {
		t.Errorf("%v ms of CPU time in %v ms, want at most %v: %+v", used, res.DurationMS, most, res)
	}
}
