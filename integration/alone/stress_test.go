package alone_test

import (
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// stress is stress-ng with these stressors, for a second or two.
func stress(stressors string) []string {
	return append([]string{"stress-ng", "--timeout", "2s", "--temp-path", "/tmp"}, strings.Fields(stressors)...)
}

// TestStress: whatever stress-ng does in a sandbox with limits, its neighbour is served at
// the same time, the host's memory is still there, and the sandbox is whole afterwards.
func TestStress(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "many")
	w := world.New(t)
	world.Needs(t, "stress-ng")
	world.NeedsInside(t, "/usr/bin/stress-ng")
	const limit = 256 << 20
	sb := w.Create(t, "--best-effort", "-m", "256m", "--pids-limit", "200", "host")
	neighbour := w.Create(t, "host")
	before := memAvailable(t)
	for _, stressors := range []string{
		"--cpu 2 --fork 2 --pipe 1 --cpu-load 90",
		"--vm 2 --vm-bytes 2g --oomable",
		"--clone 1 --zombie 1 --exec 1 --forkheavy 1",
		"--memfd 1 --shm 1 --mq 1 --pty 1 --sockfd 1 --inotify 1 --sigq 1 --sem-sysv 1",
		"--procfs 1 --dev 1 --sysbadaddr 1 --enosys 1 --ptrace 1 --seccomp 1 --landlock 1",
		"--unshare 1 --chroot 1 --umount 1 --loop 1 --swap 1 --personality 1 --kcmp 1",
	} {
		cmd := w.Command(append([]string{"exec", "--json", "--timeout", "30", sb, "--"}, stress(stressors)...)...)
		done := make(chan world.Result, 1)
		go func() { done <- w.Finish(t, cmd) }()
		answers := 0
		for running := true; running; answers++ {
			if got := w.OK(t, "exec", neighbour, "--", "echo", "served"); got != "served\n" {
				t.Errorf("the neighbour beside %s: %q", stressors, got)
			}
			select {
			case r := <-done:
				running = false
				res := world.Decode[api.ExecResult](t, r.Stdout)
				// Whether what it wanted was possible is its affair; only how it ended is ours.
				if res.Verdict == api.VerdictTimeoutWall || res.Verdict == "" {
					t.Errorf("%s: %+v", stressors, res)
				}
				if m := res.Peaks.MemoryBytes; os.Geteuid() == 0 && m > limit {
					t.Errorf("%s: %d bytes of memory", stressors, m)
				}
			default:
			}
		}
		if answers < 2 {
			t.Errorf("beside %s the neighbour was served once", stressors)
		}
		if got := w.OK(t, "exec", sb, "--", "echo", "alive"); got != "alive\n" {
			t.Errorf("after %s: %q", stressors, got)
		}
		if now := memAvailable(t); now < before/2 {
			t.Errorf("after %s the host has %d KiB of memory, before %d", stressors, now, before)
		}
	}
}

// memAvailable is how much memory the host could still give, in KiB.
func memAvailable(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "MemAvailable:" {
			return world.Decode[int](t, f[1])
		}
	}
	t.Fatal("no MemAvailable")
	return 0
}
