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
// turn without a Landlock domain and with what it cannot beat: fork, exec and wait for the same program by Go.
func BenchmarkExec(b *testing.B) {
	null := open(b, "/dev/null")
	fds := []*os.File{null, null, null}
	in := func(s *sandbox) func() {
		return func() {
			e, err := s.Start(b.Context(), guestapi.Request{Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin"}},
				fds)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := e.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	run := map[string]func(){
		"exec": in(newSandbox(b, singleMap)), "no-landlock": in(newWalled(b, singleMap, 0)),
		"floor": func() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		},
	}
	times := map[string][]time.Duration{}
	for b.Loop() {
		for name, f := range run {
			begin := time.Now()
			f()
			times[name] = append(times[name], time.Since(begin))
		}
	}
	for name, times := range times {
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
		if _, err := fmt.Sscanf(line, "%s %f kB", &name, &kib); err == nil &&
			(name == "Pss:" || name == "Rss:" || name == "Anonymous:") {
			b.ReportMetric(kib, strings.TrimSuffix(name, ":")+"-KiB")
		}
	}
}
