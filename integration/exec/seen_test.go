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

// ownMemoryFile prints that of the command's own cgroup of v2, which is all that a JVM before 24 looks at.
const ownMemoryFile = "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max"

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
	memory := memoryFile
	if !strings.Contains(c.Exec(sb, "cat /proc/self/cgroup").Stdout, "memory:/") {
		memory = ownMemoryFile
		want(memory, "536870912")
	}
	start := func(limits world.Params) (id string) {
		var running struct{ Exec string }
		c.Call(&running, "exec.start", world.Params{"sandbox": sb, "limits": limits,
			"argv": []string{"sh", "-c", "read x; nproc; " + memory}})
		return running.Exec
	}
	end := func(id, out string) {
		t.Helper()
		c.Call(nil, "exec.write", world.Params{"exec": id, "data": "\n"})
		var ended world.ExecResult
		if c.Call(&ended, "exec.wait", world.Params{"exec": id}); ended.Stdout != w.Inside(t, "nproc")+out {
			t.Errorf("a command that ran when the limits were changed: %q, want %q; %s", ended.Stdout, out,
				ended.Stderr)
		}
	}
	running, limited := start(world.Params{}), ""
	if memory == ownMemoryFile {
		limited = start(world.Params{"memory_bytes": 512 << 20}) // as much as the sandbox, and its own
	}
	c.Call(nil, "sandbox.update",
		world.Params{"sandbox": sb, "limits": world.Params{"memory_bytes": 768 << 20,
			"cpus": float64(runtime.NumCPU())}})
	end(running, "805306368\n")
	if limited != "" {
		end(limited, "536870912\n")
	}
	want(memory, "805306368")
	c.Call(nil, "sandbox.update", world.Params{"sandbox": sb, "limits": world.Params{"memory_bytes": 256 << 20}})
	want(memory, "268435456")
	want(memoryFile, "268435456")
	if all := c.Exec(sb, "nproc").Stdout; all != w.Inside(t, "nproc") {
		t.Errorf("%s CPUs of a sandbox with all", all)
	}
}
