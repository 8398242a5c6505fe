package exec_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// memoryFile prints the limit of memory as programs find it: that of cgroup v2, or of v1.
const memoryFile = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max"

// TestSeenLimits: programs size themselves by the limits of their sandbox, also after these have changed, and not by
// the host.
func TestSeenLimits(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(world.Params{"limits": world.Params{"cpus": 1, "memory_bytes": 512 << 20, "best_effort": true}})
	want := func(command, out string) {
		t.Helper()
		if res := c.Exec(sb, command); strings.TrimSpace(res.Stdout) != out {
			t.Errorf("%s: %q, want %q; %s", command, res.Stdout, out, res.Stderr)
		}
	}
	want(memoryFile, "536870912")
	want("ls /sys | tr '\\n' ' '; ls /sys/devices /sys/class",
		"block bus class dev devices firmware fs kernel module power /sys/class:\n\n/sys/devices:\nsystem")
	if res := c.Exec(sb,
		"echo 1 > /sys/fs/cgroup/x || echo 0 > /sys/devices/system/cpu/online"); strings.Count(res.Stderr,
		"Read-only file system") != 2 {
		t.Errorf("write in /sys: %q", res.Stderr)
	}
	if !world.Grouped() { // CPUs have no limit, and so none is shown
		return
	}
	if res := c.Exec(sb,
		"nproc; getconf _NPROCESSORS_ONLN; grep -c . /sys/devices/system/cpu/online"); res.Stdout != "1\n1\n1\n" {
		t.Errorf("CPUs of a sandbox with one: %q", res.Stdout)
	}
	for program, tt := range map[string]struct{ command, out string }{
		"node":    {`node -p 'process.constrainedMemory() + " " + os.availableParallelism()'`, "536870912 1"},
		"java":    {`java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '/ MaxHeapSize/ { print $4 }'; java -XshowSettings:system -version 2>&1 | awk '/Effective CPU/ { print $4 }'`, "134217728\n1"},
		"python3": {`python3 -c 'import os; print(len(os.sched_getaffinity(0)), os.cpu_count())'`, "1 1"},
	} {
		// A JVM before 24 does not look above the cgroup of its own command, where v2 has the limit.
		if program == "java" && !strings.Contains(c.Exec(sb, "cat /proc/self/cgroup").Stdout, "memory:/") {
			continue
		}
		t.Run(program, func(t *testing.T) {
			testenv.Programs(t, program)
			if res := c.Exec(sb, tt.command); strings.TrimSpace(res.Stdout) != tt.out {
				t.Errorf("%s: %q, want %q; %s", tt.command, res.Stdout, tt.out, res.Stderr)
			}
		})
	}
	// Those with limits are spread over the CPUs, and what runs in one follows a change.
	if runtime.NumCPU() > 1 {
		online := "cat /sys/devices/system/cpu/online"
		other := c.SandboxOf(world.Params{"limits": world.Params{"cpus": 1}})
		if a, b := c.Exec(sb, online).Stdout, c.Exec(other, online).Stdout; a == b {
			t.Errorf("two sandboxes of one CPU each are both on %s", a)
		}
		c.Call(nil, "sandbox.remove", world.Params{"sandbox": other})
	}
	var running struct{ Exec string }
	c.Call(&running, "exec.start", world.Params{"sandbox": sb, "argv": []string{"sh", "-c", "read x; nproc"}})
	c.Call(nil, "sandbox.update",
		world.Params{"sandbox": sb, "limits": world.Params{"memory_bytes": 256 << 20,
			"cpus": float64(runtime.NumCPU())}})
	c.Call(nil, "exec.write", world.Params{"exec": running.Exec, "data": "\n"})
	var ended world.ExecResult
	if c.Call(&ended, "exec.wait", world.Params{"exec": running.Exec}); ended.Stdout != w.Inside(t, "nproc") {
		t.Errorf("%q CPUs of a command that ran when the limit was raised", ended.Stdout)
	}
	want(memoryFile, "268435456")
	if all := c.Exec(sb, "nproc").Stdout; all != w.Inside(t, "nproc") {
		t.Errorf("%s CPUs of a sandbox with all", all)
	}
}
