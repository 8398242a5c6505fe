package cost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// verdict is a test that may fail without the one that made it.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper()                      {}
func (v *verdict) Errorf(f string, args ...any) { v.said = fmt.Sprintf(f, args...) }

var sink int

// spin uses the CPU for a time.
func spin(t testing.TB, d time.Duration) {
	for begin := clock(t); clock(t)-begin < d; {
		sink++
	}
}

func TestBound(t *testing.T) {
	b := Bound{Base: 20 * time.Millisecond, PerByte: time.Millisecond}
	for name, c := range map[string]struct {
		n       int
		costs   []time.Duration // of the first call, the second...; the last of all others
		refused bool
	}{
		"cheap":                    {n: 10, costs: []time.Duration{time.Millisecond}},
		"in proportion":            {n: 100, costs: []time.Duration{60 * time.Millisecond}},
		"too expensive":            {n: 10, costs: []time.Duration{35 * time.Millisecond}, refused: true},
		"expensive for the first":  {n: 10, costs: []time.Duration{60 * time.Millisecond, time.Millisecond}},
		"cheap for the first only": {n: 0, costs: []time.Duration{time.Millisecond, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			v, calls := &verdict{TB: t}, 0
			b.check(v, c.n, func() {
				spin(t, c.costs[min(calls, len(c.costs)-1)])
				calls++
			})
			if (v.said != "") != c.refused {
				t.Errorf("%d calls: %q", calls, v.said)
			}
			if c.refused && (calls != tries || !strings.Contains(v.said, "an input of 10 bytes takes")) {
				t.Errorf("%d calls: %q", calls, v.said)
			}
		})
	}
}

// TestWaiting: what does not use the CPU costs nothing.
func TestWaiting(t *testing.T) {
	b := Bound{Base: 20 * time.Millisecond}
	b.check(t, 0, func() { testenv.Moment(100 * time.Millisecond) })
}

// TestGrown: what takes the square of its length is found with short inputs, and parse sees its input last.
func TestGrown(t *testing.T) {
	square := func(s string) {
		for range len(s) {
			for range len(s) / 4 {
				sink++
			}
		}
	}
	v, found := &verdict{TB: t}, 0
	for i := range 5000 {
		in, last := fmt.Sprintf("input %d", i), ""
		Within(v, Bound{Base: 5 * time.Millisecond, PerByte: 100 * time.Nanosecond}, in, func(s string) {
			square(s)
			last = s
		})
		if last != in {
			t.Fatalf("parsed %d bytes last, want %q", len(last), in)
		}
		if v.said != "" {
			found++
			break // each takes a while
		}
	}
	if found == 0 {
		t.Error("the square of the length is in proportion to it")
	}
}
