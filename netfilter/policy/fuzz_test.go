package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// naive matches a name with one pattern the slow way.
func naive(p api.NetPattern, name string) bool {
	if p.Name == "" {
		return true
	}
	labels, want := strings.Split(name, "."), strings.Split(p.Name, ".")
	if !p.Below {
		return slices.Equal(labels, want)
	}
	return len(labels) > len(want) && slices.Equal(labels[len(labels)-len(want):], want)
}

// FuzzName compares decisions about names with going through all entries, and wants what
// is no name refused whatever the policy says.
func FuzzName(f *testing.F) {
	f.Add("*.wild.test a.test tcp://b.test:22", "*.bad.wild.test a.test:443", "x.wild.test", uint16(443))
	f.Add("*.wild.test", "", "evil.com\x00.wild.test", uint16(443))
	f.Add("a.b.c udp://a.b.c:53", "*", "A.b.C.", uint16(53))
	f.Add("xn--p1ai.test", "*:25", "0x7f.1", uint16(25))
	f.Fuzz(func(t *testing.T, allow, block, name string, port uint16) {
		p := api.NetPolicy{Mode: api.NetAllow, Allow: strings.Fields(allow), Block: strings.Fields(block)}
		var r *Rules
		var err error
		cost.Of(t, len(allow)+len(block)+len(name), func() {
			if r, err = Compile(p); err == nil {
				r.Name(name)
			}
		})
		if err != nil || port == 0 { // no entry names port 0
			return
		}
		clean, err := api.NetName(name)
		if err != nil || clean == "localhost" || strings.HasSuffix(clean, ".localhost") {
			if r.Name(name).Allow || r.Connect(name, TCP, port).Allow || r.Host(name, TCP, port).Allow {
				t.Fatalf("%q is no name and allowed", name)
			}
			return
		}
		for _, c := range clean {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", c) {
				t.Fatalf("%q is a name", clean)
			}
		}
		for _, proto := range []Proto{TCP, UDP} {
			allowed := false
			for _, s := range p.Allow {
				e, _ := api.ParseNetPattern(s)
				here := naive(e, clean) && (e.Proto == proto || e.Proto == "" && proto == TCP) &&
					(e.Port == port || e.Port == 0 && (port == 80 || port == 443))
				allowed = allowed || here
			}
			for _, s := range p.Block {
				e, _ := api.ParseNetPattern(s)
				if naive(e, clean) && (e.Proto == proto || e.Proto == "") && (e.Port == port || e.Port == 0) {
					allowed = false
				}
			}
			d := r.Connect(name, proto, port)
			if d.Allow != allowed {
				t.Fatalf("allow %q block %q: connect %s %s:%d is %+v, want %t", p.Allow, p.Block, proto, clean, port, d,
					allowed)
			}
			if d.Allow && !r.Name(name).Allow {
				t.Fatalf("%s may be connected to and not looked up", clean)
			}
			if d.Rule == "" || d.Why == "" {
				t.Fatalf("%+v explains nothing", d)
			}
		}
	})
}

// FuzzAddress wants no special address dialled without being named, in whatever form.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:a00:1::", "fe80::1",
		"1.1.1.1", "2606:4700::1111"} {
		a := netip.MustParseAddr(s).As16()
		f.Add(a[:], "0.0.0.0/0 ::/0")
	}
	f.Fuzz(func(t *testing.T, raw []byte, cidrs string) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		var r *Rules
		var err error
		cost.Input(t, cidrs, func(cidrs string) {
			r, err = Compile(api.NetPolicy{Mode: api.NetOpen, AllowCIDRs: strings.Fields(cidrs)})
		})
		if err != nil {
			return
		}
		outside := func(netip.Addr) bool { return false }
		d, l := r.Dial("a.test", a, 443, outside), r.Literal(a, TCP, 443)
		if d.Allow != l.Allow {
			t.Fatalf("%s: %+v with a name, %+v without", a, d, l)
		}
		plain := a.Unmap()
		if inner, ok := embedded(plain); ok {
			plain = inner
		}
		named := slices.ContainsFunc(r.Policy().AllowCIDRs, func(s string) bool {
			p, _ := api.ParseNetCIDR(s)
			return p.Bits() > 0 && p.Contains(plain)
		})
		private := plain.IsPrivate() || plain.IsLoopback() || plain.IsLinkLocalUnicast() || plain.IsMulticast() ||
			plain.IsUnspecified() ||
			plain.Is6() && !plain.Is4In6() && plain.As16()[0]>>5 != 1
		if d.Allow && private && !named {
			t.Fatalf("%s (%s) may be dialled with %q", a, plain, cidrs)
		}
		if d := r.Dial("a.test", a, 443, func(netip.Addr) bool { return true }); d.Allow &&
			!slices.ContainsFunc(r.Policy().AllowCIDRs, func(s string) bool {
				p, _ := api.ParseNetCIDR(s)
				return p.Contains(a.Unmap()) && (p.IsSingleIP() || plain.IsLoopback()) || p.Contains(plain) &&
					plain.IsLoopback()
			}) {
			t.Fatalf("%s is the host's own and may be dialled with %q", a, cidrs)
		}
	})
}

// BenchmarkConnect must cost the same with any number of rules.
func BenchmarkConnect(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(itoa(n), func(b *testing.B) {
			p := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"*.wild.test"}}
			for i := range n {
				p.Allow = append(p.Allow, "n"+itoa(i)+".example.test", "*.w"+itoa(i)+".example.test")
				p.Block = append(p.Block, "b"+itoa(i)+".example.test:"+itoa(i%1000+1))
				p.BlockCIDRs = append(p.BlockCIDRs, netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}).
					String())
			}
			r := compile(b, p)
			addr := netip.MustParseAddr("93.184.216.34")
			b.ReportAllocs()
			for b.Loop() {
				if !r.Name("a.b.wild.test").Allow || !r.Connect("a.b.wild.test", TCP, 443).
					Allow || !r.Dial("", addr, 443, isNot).Allow {
					b.Fatal("refused")
				}
			}
		})
	}
}

func isNot(netip.Addr) bool { return false }

// BenchmarkCompile is on the way of each create and update.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{3, 10_000} {
		b.Run(itoa(n), func(b *testing.B) {
			p := api.NetPolicy{Mode: api.NetAllow}
			for i := range n {
				p.Allow = append(p.Allow, "n"+itoa(i)+".example.test")
			}
			for b.Loop() {
				compile(b, p)
			}
		})
	}
}
