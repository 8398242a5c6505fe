package program

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/bpf"
)

// TestHooks tries every way to reach a destination, each to one that the policy names and to
// one that it does not. Both have a listener: only the programs can tell them apart.
func TestHooks(t *testing.T) {
	r := newRig(t, "yes")
	cgroup, s := r.sandbox("sb", &bpf.Policy{
		Addresses: []bpf.Address{
			at("198.18.0.5:7000", bpf.TCP), at("198.18.0.5:7000", bpf.UDP), at("[fd00:1::5]:7000", bpf.TCP),
			at("[fd00:1::5]:7000", bpf.UDP),
		},
	})
	w := r.worker("sb")
	if got := w.do("listen"); got != "ok" {
		t.Fatal(got)
	}
	const mptcp = 262 // linux/in.h
	for _, tt := range []struct {
		name, verb      string
		kind            [3]int
		allowed, denied string
		hook            bpf.Hook
	}{
		{"TCP", "connect", [3]int{unix.AF_INET, unix.SOCK_STREAM, 0}, "198.18.0.5:7000", "198.18.0.6:7000",
			bpf.Connect},
		{"TCP, another port", "connect", [3]int{unix.AF_INET, unix.SOCK_STREAM, 0}, "198.18.0.5:7000",
			"198.18.0.5:7001", bpf.Connect},
		{"TCP over IPv6", "connect", [3]int{unix.AF_INET6, unix.SOCK_STREAM, 0}, "[fd00:1::5]:7000", "[fd00:1::6]:7000",
			bpf.Connect},
		{"TCP, v4-mapped", "connect", [3]int{unix.AF_INET6, unix.SOCK_STREAM, 0}, "[::ffff:198.18.0.5]:7000",
			"[::ffff:198.18.0.6]:7000", bpf.Connect},
		{"MPTCP", "connect", [3]int{unix.AF_INET, unix.SOCK_STREAM, mptcp}, "198.18.0.5:7000", "198.18.0.6:7000",
			bpf.Connect},
		{"MPTCP over IPv6", "connect", [3]int{unix.AF_INET6, unix.SOCK_STREAM, mptcp}, "[fd00:1::5]:7000",
			"[fd00:1::6]:7000", bpf.Connect},
		{"MPTCP, v4-mapped", "connect", [3]int{unix.AF_INET6, unix.SOCK_STREAM, mptcp}, "[::ffff:198.18.0.5]:7000",
			"[::ffff:198.18.0.6]:7000", bpf.Connect},
		{"fast open", "fastopen", [3]int{unix.AF_INET, unix.SOCK_STREAM, 0}, "198.18.0.5:7000", "198.18.0.6:7000",
			bpf.Connect},
		{"fast open over IPv6", "fastopen", [3]int{unix.AF_INET6, unix.SOCK_STREAM, 0}, "[fd00:1::5]:7000",
			"[fd00:1::6]:7000", bpf.Connect},
		{"fast open, v4-mapped", "fastopen", [3]int{unix.AF_INET6, unix.SOCK_STREAM, 0}, "[::ffff:198.18.0.5]:7000",
			"[::ffff:198.18.0.6]:7000", bpf.Connect},
		{"fast open of MPTCP", "fastopen", [3]int{unix.AF_INET, unix.SOCK_STREAM, mptcp}, "198.18.0.5:7000",
			"198.18.0.6:7000", bpf.Connect},
		{"fast open, deferred", "fastopen-later", [3]int{unix.AF_INET, unix.SOCK_STREAM, 0}, "198.18.0.5:7000",
			"198.18.0.6:7000", bpf.Connect},
		{"UDP, connected", "connect", [3]int{unix.AF_INET, unix.SOCK_DGRAM, 0}, "198.18.0.5:7000", "198.18.0.6:7000",
			bpf.Connect},
		{"UDP", "sendto", [3]int{unix.AF_INET, unix.SOCK_DGRAM, 0}, "198.18.0.5:7000", "198.18.0.6:7000", bpf.Sendmsg},
		{"UDP over IPv6", "sendto", [3]int{unix.AF_INET6, unix.SOCK_DGRAM, 0}, "[fd00:1::5]:7000", "[fd00:1::6]:7000",
			bpf.Sendmsg},
		{"UDP, v4-mapped", "sendto", [3]int{unix.AF_INET6, unix.SOCK_DGRAM, 0}, "[::ffff:198.18.0.5]:7000",
			"[::ffff:198.18.0.6]:7000", bpf.Sendmsg},
		{"UDP, v4-mapped and connected", "connect", [3]int{unix.AF_INET6, unix.SOCK_DGRAM, 0},
			"[::ffff:198.18.0.5]:7000", "[::ffff:198.18.0.6]:7000", bpf.Connect},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.do("%s %d %d %d %s", tt.verb, tt.kind[0], tt.kind[1], tt.kind[2], tt.allowed); got != "ok" {
				t.Errorf("to %s: %s, want ok", tt.allowed, got)
			}
			r.quiet()
			if got := w.do("%s %d %d %d %s", tt.verb, tt.kind[0], tt.kind[1], tt.kind[2], tt.denied); got != refusal {
				t.Errorf("to %s: %s, want %s", tt.denied, got, refusal)
			}
			e := r.event()
			to := netip.MustParseAddrPort(tt.denied)
			to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
			if e.Hook != tt.hook || e.Verdict != bpf.Deny || e.To != to || e.Errno != refusedErrno {
				t.Errorf("event %+v, want hook %d, denied, to %s, %s", e, tt.hook, to, refusal)
			}
			if e.Cgroup != cgroup || e.Process != cgroup || e.PID != w.pid || e.UID != 0 || e.Time == 0 {
				t.Errorf("event %+v, want cgroup %d, pid %d, uid 0, a time", e, cgroup, w.pid)
			}
			r.quiet()
		})
	}
	counts := must(r.maps.Counts(cgroup))(t)
	if counts.Denied != 17 || counts.Allowed != 17 || counts.Lost != 0 {
		t.Errorf("counts %+v, want 17 denied, 17 allowed", counts)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
