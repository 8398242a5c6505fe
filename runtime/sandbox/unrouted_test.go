package sandbox

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestUnrouted: the counters are found in the kernel's tables, of which one that has none counts nothing.
func TestUnrouted(t *testing.T) {
	four := "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 2 7 41 9\nIcmp: InMsgs\nIcmp: 5\n"
	six := "Ip6InReceives                   \t0\nIp6OutNoRoutes                  \t12\n"
	if a, b := noRoutes4([]byte(four)), noRoutes6([]byte(six)); a != 41 || b != 12 {
		t.Errorf("%d and %d, want 41 and 12", a, b)
	}
	for _, cut := range []string{"", "Ip: OutNoRoutes\n", "Ip: OutNoRoutes\nIp: \n", "Ip: OutNoRoutes\nIp: x\n",
		"Ip: OutNoRoutes\nIp:\n"} {
		if n := noRoutes4([]byte(cut)); n != 0 {
			t.Errorf("%q: %d", cut, n)
		}
	}
	if _, err := os.Stat("/proc/self/net/snmp"); err != nil {
		t.Fatal(err)
	}
	if n := unrouted(os.Getpid()); n < 0 {
		t.Errorf("%d here", n)
	}
}

// TestLookSince: who fails is told about what came since it began and since another one ended, and of nothing twice.
func TestLookSince(t *testing.T) {
	at := func(s, n int64) look { return look{at: time.Unix(s, 0), unrouted: n} }
	for _, c := range []struct{ begun, looked, now, from look }{
		{at(1, 0), look{}, at(9, 2), at(1, 0)},     // alone
		{at(5, 4), at(3, 2), at(9, 4), at(5, 4)},   // behind one that has ended
		{at(1, 0), at(3, 2), at(9, 4), at(3, 2)},   // beside it
		{at(1, 0), at(10, 5), at(9, 4), at(10, 5)}, // has read the counter before another one that was told about more
		{at(1, 6), at(3, 2), at(9, 0), at(3, 6)},   // the namespace is gone
	} {
		if from := c.begun.later(c.looked); from != c.from {
			t.Errorf("%v behind %v: from %v, want %v", c.begun, c.looked, from, c.from)
		}
		if next := c.now.later(c.looked); next.at.Before(c.looked.at) || next.unrouted < c.looked.unrouted {
			t.Errorf("%v behind %v goes back to %v", c.now, c.looked, next)
		}
	}
	if d := (api.NetTarget{}).Where(); d != "an address" {
		t.Errorf("an unknown target is %q", d)
	}
}

// lateNet is a network that notes since when it was asked what has failed.
type lateNet struct {
	Network
	since []time.Time
}

func (n *lateNet) Unanswered(since time.Time) { n.since = append(n.since, since) }

// TestLookWhy: a command that fails is not told about what came before it, nor before the end of one beside it that has
// succeeded.
func TestLookWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := refusing(t)
		n := &lateNet{}
		s.net = n
		begin := func() (*running, time.Time) {
			testenv.Elapse(time.Second)
			r := &running{s: s}
			m.beginLook(r)
			return r, time.Now()
		}
		end := func(r *running, failed bool) time.Time {
			testenv.Elapse(time.Second)
			m.lookWhy(r, failed)
			return time.Now()
		}
		long, _ := begin()
		short, _ := begin()
		long.company, short.company = true, true // as listing does
		succeeded := end(short, false)
		end(long, true)
		next, begun := begin()
		end(next, true)
		if want := []time.Time{succeeded, begun}; !slices.EqualFunc(n.since, want, time.Time.Equal) {
			t.Errorf("asked since %v, want %v", n.since, want)
		}
	})
}
