package guest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// BenchmarkExec is one command from request to exit, over the real channel.
func BenchmarkExec(b *testing.B) {
	s := newSandbox(b, singleMap)
	null := open(b, "/dev/null")
	fds := []*os.File{null, null, null}
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		e, err := s.Start(b.Context(), guestapi.Request{Argv: []string{"/bin/true"}, Env: []string{"PATH=/bin"}}, fds)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "median-us")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
	pss := s.sh("grep '^Pss:' /proc/self/smaps_rollup >/dev/null; echo ok")
	b.Log(strings.TrimSpace(pss))
}
