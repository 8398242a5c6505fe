package launch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
)

func TestInside(t *testing.T) {
	for _, name := range []string{"identity", "sandbox", "failing", "parallel", "killed", "canceled", "signals",
		"orphans", "overlay", "gone", "churn",
		"claim", "claim-binds", "claim-hostile", "claim-fails", "claim-waits"} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				k.boot(t, name).pass()
				if text, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
					strings.Contains(string(text), "hutch-launch-world-") {
					t.Errorf("a mount shows on the host, %v:\n%s", err, text)
				}
			})
		})
	}
}

// TestDaemonEnds lets hutchd go in each way: nothing below hutch-launch stays,
// and its exit code is hutchd's.
func TestDaemonEnds(t *testing.T) {
	for _, tt := range []struct {
		test string
		code int
	}{{"leave", 0}, {"die", 128 + int(unix.SIGKILL)}} {
		t.Run(tt.test, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				b := k.boot(t, tt.test)
				if code := b.end(); code != tt.code {
					t.Errorf("exit code %d, want %d\n%s", code, tt.code, b.stderr)
				}
				b.noneLeft()
			})
		})
	}
}

// TestMonitorEnds takes the monitor away: by its own wish and by SIGKILL.
func TestMonitorEnds(t *testing.T) {
	for name, end := range map[string]func(*booted) error{
		"closes": func(b *booted) error { return b.stdin.Close() },
		"dies":   func(b *booted) error { return b.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				b := k.boot(t, "wait")
				b.awaitBoot()
				launch, err := sys.OpenPidfd(b.launch)
				must(t, err)
				defer launch.Close()
				b.stderr.await(t, waiting)
				must(t, end(b))
				must(t, sys.AwaitExit(launch)) // it is the last to go
				code := b.end()
				if want := map[string]int{"closes": 0, "dies": -1}[name]; code != want {
					t.Errorf("exit code %d, want %d", code, want)
				}
				b.noneLeft()
			})
		})
	}
}

func TestBadInit(t *testing.T) {
	k := ownKind()
	k.boot(t, "badinit", func(w *world) { w.Init = writeBin(t, "not-an-init", "no program\n") }).pass()
}

// TestBootFails checks that every failure to boot is told and leaves nothing.
func TestBootFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*world)
		text   string
	}{
		{"no state folder", func(w *world) { w.NoState = true }, "open state folder: open_tree"},
		{"mount is a file", func(w *world) { w.Mount = filepath.Join(bins, "launch.test") }, ""},
		{"hutchd is no program", func(w *world) { w.Hutchd = writeBin(t, "not-hutchd", "no program\n") },
			"start hutchd: "},
		{"hutch-init is a folder", func(w *world) { w.Init = "." }, "read hutch-init: "},
		{"hutch-launch is no program", func(w *world) { w.Launch = writeBin(t, "not-hutch-launch", "no program\n") },
			"exec format error"},
		{"hutch-launch ends at once", func(w *world) { w.Launch = "hutch-init" },
			"hutch-launch ended before it started hutchd"},
		{"hutch-launch hangs", func(w *world) {
			w.Launch, w.Env, w.TimeoutMS = "launch.test",
				[]string{roleVar + "=" + hang}, 200
		},
			"start hutch-launch: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := ownKind().boot(t, "nothing", tt.change)
			if code := b.end(); code != exitSaid || !strings.Contains(b.stderr.String(), tt.text) {
				t.Errorf("exit code %d, want %d and %q in\n%s", code, exitSaid, tt.text, b.stderr)
			}
			b.noneLeft()
		})
	}
}

// TestFaults fails each step of a create.
func TestFaults(t *testing.T) {
	const steps = 6
	launcher := buildFaulty(t)
	for i := range steps {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			ownKind().boot(t, "faults", func(w *world) {
				w.Launch, w.Env = launcher, []string{fmt.Sprintf("HUTCH_FAULT_LAUNCH=%d", i)}
			}).pass()
		})
	}
}

// TestClaimFaults fails each step of a claim.
func TestClaimFaults(t *testing.T) {
	launcher := buildFaulty(t)
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			ownKind().boot(t, "claim-faults", func(w *world) {
				w.Launch, w.Env = launcher, []string{fmt.Sprintf("HUTCH_FAULT_LAUNCH=%d", 100+i)}
			}).pass()
		})
	}
}

// buildFaulty builds hutch-launch with the fault seam, which the product's binary
// does not have.
func buildFaulty(t *testing.T) string {
	t.Helper()
	testenv.Toolchain(t)
	const name = "hutch-launch-faults"
	out := filepath.Join(bins, name)
	if _, err := os.Stat(out); err == nil {
		return name
	}
	must(t, goBuild("hutch-launch", out, "CGO_ENABLED=1", launchFlags("hutch_faults")...))
	return name
}

// writeBin puts a file where the binaries are.
func writeBin(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(bins, name)
	must(t, os.WriteFile(path, []byte(content), 0o755))
	t.Cleanup(func() { os.Remove(path) })
	return name
}

// BenchmarkCreate reports the medians of one boot, in milliseconds.
func BenchmarkCreate(b *testing.B) {
	for range b.N {
		run := ownKind().boot(b, "bench")
		run.pass()
		for line := range strings.Lines(run.stderr.String()) {
			var name string
			var v float64
			if n, _ := fmt.Sscanf(line, benchLine+"%s %f", &name, &v); n == 2 {
				b.ReportMetric(v, name+"-ms")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}
