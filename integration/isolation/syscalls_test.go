package isolation_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// unshareScript makes the call unshare(flags) so many times, and prints the last errno.
const unshareScript = `
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(int(sys.argv[2])):
    r = libc.syscall(272, ctypes.c_long(int(sys.argv[1], 0)))
print("ok" if r == 0 else errno.errorcode[ctypes.get_errno()])`

const newUser, newFiles = "0x10000000", "0x400"

// TestSyscallDenied: a refused call fails as the profile says, and is in the result of the exec that made
// it, in the events and in hutch why, with the process, the reason and the way to allow it. The same call that is
// allowed is in none of them.
func TestSyscallDenied(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	testenv.Arch(t, "amd64") // whose number it is
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	run := func(flags string) api.ExecResult {
		t.Helper()
		return world.Decode[api.ExecResult](t,
			w.OK(t, "rpc", "exec.run", fmt.Sprintf(`{"sandbox":%q,"argv":["python3","-c",%q,%q,"3"]}`, sb,
				unshareScript, flags)))
	}
	res := run(newUser)
	if res.Stdout != "EPERM\n" || len(res.Denials) != 1 {
		t.Fatalf("%q, denials %+v", res.Stdout, res.Denials)
	}
	d := res.Denials[0]
	if d.Kind != api.KindSyscall || d.Target != "unshare" || d.Exec != res.Exec || d.By != "seccomp" ||
		d.Errno != "EPERM" || d.HowToAllow != "--seccomp browser" ||
		!strings.Contains(d.Why, "namespace") || d.Process == nil || d.Process.PID == 0 ||
		!slices.Equal(d.Process.Command, []string{"python3"}) {
		t.Errorf("%+v, process %+v", d, d.Process)
	}
	if res := run(newFiles); res.Stdout != "ok\n" || len(res.Denials) != 0 {
		t.Errorf("allowed: %q, denials %+v", res.Stdout, res.Denials)
	}
	if out := w.OK(t, "why", sb); !strings.Contains(out, "unshare") || !strings.Contains(out, "--seccomp browser") {
		t.Errorf("why: %s", out)
	}
	events := w.OK(t, "events", "-n", "--kind", "syscall.denied", "--sandbox", sb)
	if strings.Count(events, "\n") != 1 || !strings.Contains(events, res.Exec) ||
		!strings.Contains(events, "0x10000000") {
		t.Errorf("events: %s", events)
	}
	// What a runtime only tries is no news.
	if _, err := exec.LookPath("node"); err == nil {
		if out := w.OK(t, "rpc", "exec.run", fmt.Sprintf(`{"sandbox":%q,"argv":["node","-e","1"]}`,
			sb)); !strings.Contains(out, `"denials": []`) {
			t.Errorf("node: %s", out)
		}
	}
	// Of a command that failed it is told behind its output.
	if r := w.Run(t, "exec", sb, "--", "sh", "-c", "unshare -U true || exit 3"); r.Code != 3 ||
		!strings.Contains(r.Stderr, "hutch: system call: unshare was refused") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}

// TestSyscallDeniedWhose: each of several commands at once has its own.
func TestSyscallDeniedWhose(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	testenv.Arch(t, "amd64") // whose number it is
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "host")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			flags, want := newFiles, 0
			if i%2 == 0 {
				flags, want = newUser, 1
			}
			out := w.OK(t, "rpc", "exec.run", fmt.Sprintf(`{"sandbox":%q,"argv":["python3","-c",%q,%q,"1"]}`, sb,
				unshareScript, flags))
			res := world.Decode[api.ExecResult](t, out)
			if len(res.Denials) != want || want == 1 && res.Denials[0].Exec != res.Exec {
				t.Errorf("%s: %+v", flags, res.Denials)
			}
		})
	}
	wg.Wait()
}

// TestSyscallFlood: however many calls are refused, from however many processes, at the limit of processes
// too: each fails, the sandbox can be paused and used meanwhile, survives hutchd, and tells within bounds.
func TestSyscallFlood(t *testing.T) {
	testenv.Arch(t, "amd64") // whose number it is
	world.NeedsPython(t)
	w := world.New(t)
	sb := w.Create(t, "--best-effort", "--pids-limit", "40", "host")
	flood := fmt.Sprintf(`
import os, subprocess, sys
children = []
for _ in range(60):
    try: children.append(subprocess.Popen(["python3", "-c", %q, "0x10000000", "%d"], stdout=subprocess.PIPE))
    except OSError: break
print(sorted({c.communicate()[0] for c in children}))`, unshareScript, world.Rounds(5000))
	started := world.Decode[api.ExecResult](t,
		w.OK(t, "rpc", "exec.start", fmt.Sprintf(`{"sandbox":%q,"argv":["python3","-c",%q],"background":true}`, sb,
			flood)))
	for range 3 {
		w.OK(t, "pause", sb)
		w.OK(t, "resume", sb)
	}
	world.Kill(t, w.Daemon(t).Hutchd)
	res := world.Decode[api.ExecResult](t, w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, started.Exec)))
	if res.Stdout != "[b'EPERM\\n']\n" || res.ExitCode != 0 {
		t.Errorf("exit %d: %q %s", res.ExitCode, res.Stdout, res.Stderr)
	}
	if events := w.OK(t, "events", "-n", "--kind", "syscall.denied", "--sandbox", sb); strings.Count(events,
		"\n") > 1000 {
		t.Errorf("%d events", strings.Count(events, "\n"))
	}
	if got := w.OK(t, "exec", sb, "--", "echo", "alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}
