package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// BenchmarkExec is one command from request to exit over the real channel, in
// turn with what it can not beat: fork, exec and wait for the same program by Go.
func BenchmarkExec(b *testing.B) {
	s := newSandbox(b, singleMap)
	null := open(b, "/dev/null")
	fds := []*os.File{null, null, null}
	var own, floor []time.Duration
	for b.Loop() {
		begin := time.Now()
		e, err := s.Start(b.Context(), guestapi.Request{Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin"}}, fds)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		own = append(own, time.Since(begin))
		begin = time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		floor = append(floor, time.Since(begin))
	}
	for name, times := range map[string][]time.Duration{"exec": own, "floor": floor} {
		slices.Sort(times)
		b.ReportMetric(float64(times[0].Microseconds()), name+"-min-us")
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), name+"-median-us")
	}
}

// BenchmarkMemory reports what PID 1 keeps after some work, in KiB.
func BenchmarkMemory(b *testing.B) {
	s := newSandbox(b, rangeMap)
	for b.Loop() {
		s.sh("true")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var name string
		var kib float64
		if _, err := fmt.Sscanf(line, "%s %f kB", &name, &kib); err == nil && (name == "Pss:" || name == "Rss:" || name == "Anonymous:") {
			b.ReportMetric(kib, strings.TrimSuffix(name, ":")+"-KiB")
		}
	}
}
