package program

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/bpf/bpftest"
)

// timed connects again and again, and answers with the mean of connect(2). Of a stream the
// other end accepts, outside of what is timed.
func timed(times, kind int, to string) error {
	var listener int
	if kind == unix.SOCK_STREAM {
		var err error
		if listener, err = unix.Socket(unix.AF_INET, kind, 0); err != nil {
			return err
		}
		defer unix.Close(listener)
		a := netip.MustParseAddrPort(to)
		if err := errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(listener, &unix.SockaddrInet4{Port: int(a.Port())}), unix.Listen(listener, 1)); err != nil {
			return err
		}
	}
	var total time.Duration
	for range times {
		s, err := unix.Socket(unix.AF_INET, kind, 0)
		if err != nil {
			return err
		}
		begin := time.Now()
		err = reach("connect", s, unix.AF_INET, to)
		total += time.Since(begin)
		if kind == unix.SOCK_STREAM && err == nil {
			var c int
			if c, _, err = unix.Accept(listener); err == nil {
				err = unix.Close(c)
			}
		}
		_ = unix.Close(s)
		if err != nil && !errors.Is(err, unix.EACCES) {
			return err
		}
	}
	return fmt.Errorf("%d", total.Nanoseconds()/int64(times))
}

// BenchmarkConnect compares connect(2) in a cgroup with the programs and in one without, in turn,
// and what more rules and sandboxes add.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b, "yes")
	plain := bpftest.Cgroup(b, 0)
	_, s := r.sandbox("sb", &bpf.Policy{})
	in, out := r.worker("sb"), startWorker(b, plain)
	policy := func(rules int) bpf.Policy {
		p := bpf.Policy{Addresses: []bpf.Address{at("198.18.0.5:7001", bpf.TCP), at("198.18.0.5:7001", bpf.UDP)}}
		for i := range rules - 1 {
			a := netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)})
			p.Addresses = append(p.Addresses, bpf.Address{Addr: a, Port: 443, Proto: bpf.TCP, Verdict: bpf.Allow})
			p.Ranges = append(p.Ranges,
				bpf.Range{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24),
					TCP: true, Verdict: bpf.Allow})
		}
		return p
	}
	const times, allowed, denied = 500, "198.18.0.5:7001", "198.18.0.6:7001"
	took := map[string][]float64{}
	note := func(what string, w *worker, kind int, to string) {
		n, err := strconv.Atoi(w.do("time %d %d %s", times, kind, to))
		if err != nil {
			b.Fatal(err)
		}
		took[what] = append(took[what], float64(n))
	}
	drain := func() {
		r.events.SetDeadline(time.Now())
		for _, err := r.events.Read(); err == nil; _, err = r.events.Read() {
		}
	}
	var others []*bpf.Sandbox
	for b.Loop() {
		for _, step := range []struct {
			name             string
			rules, sandboxes int
		}{{"1 rule", 1, 1}, {"10000 rules", 10000, 1}, {"1000 sandboxes", 1, 1000}} {
			if err := s.Replace(policy(step.rules)); err != nil {
				b.Fatal(err)
			}
			for i := range step.sandboxes - 1 {
				others = append(others, must(r.maps.Add(uint64(1)<<40+uint64(i), policy(10)))(b))
			}
			note("tcp without/"+step.name, out, unix.SOCK_STREAM, allowed)
			note("tcp/"+step.name, in, unix.SOCK_STREAM, allowed)
			note("udp without/"+step.name, out, unix.SOCK_DGRAM, allowed)
			note("udp/"+step.name, in, unix.SOCK_DGRAM, allowed)
			note("denied/"+step.name, in, unix.SOCK_DGRAM, denied)
			drain()
			for _, o := range others {
				if err := o.Close(); err != nil {
					b.Fatal(err)
				}
			}
			others = nil
		}
	}
	var text strings.Builder
	last := ""
	for _, what := range slices.Sorted(maps.Keys(took)) {
		all := took[what]
		slices.Sort(all)
		if kind, _, _ := strings.Cut(what, "/"); kind != last { // a log has ten lines at most
			fmt.Fprintf(&text, "\n%s, ns, of %d rounds:", kind, len(all))
			last = kind
		}
		_, step, _ := strings.Cut(what, "/")
		fmt.Fprintf(&text, "  %s min %.0f p50 %.0f", step, all[0], all[len(all)/2])
	}
	b.Log(text.String())
}

// BenchmarkAdd is what a sandbox with ten names costs.
func BenchmarkAdd(b *testing.B) {
	r := newRig(b, "yes")
	p := bpf.Policy{}
	for i := range 10 {
		p.Addresses = append(p.Addresses, bpf.Address{Addr: netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), Port: 443,
			Proto: bpf.TCP, Verdict: bpf.Allow})
	}
	for b.Loop() {
		s := must(r.maps.Add(1<<40, p))(b)
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkEvent is how long a refusal takes to whoever reads the ring.
func BenchmarkEvent(b *testing.B) {
	r := newRig(b, "yes")
	r.sandbox("sb", &bpf.Policy{})
	w := r.worker("sb")
	var took []time.Duration
	for b.Loop() {
		next := make(chan time.Duration, 1)
		go func() {
			e := r.event()
			var now unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it never fails
			next <- time.Duration(now.Nano()) - e.Time
		}()
		if got := w.do("%s", udp4+"198.18.0.6:7001"); got != refusal {
			b.Fatal(got)
		}
		took = append(took, <-next)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
