package names

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// FuzzAnswer: whatever is sent, the reply is none or well formed, belongs to the query,
// gives no name an address that the policy does not, and says nothing else.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"example.com.", "a.wild.test.", "wild.test.", "evil.test.", "localhost.",
		"1.0.0.127.in-addr.arpa.", "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypePTR, dns.TypeANY} {
			m := new(dns.Msg)
			m.SetQuestion(name, qtype)
			plain, _ := m.Pack()
			f.Add(plain, true)
			edns(m)
			withEDNS, _ := m.Pack()
			f.Add(withEDNS, false)
		}
	}
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09evil.com\x00\x04wild\x04test\x00\x00\x01\x00\x01"), true)
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), true)
	r := start(f, allow("example.com", "*.wild.test"), DefaultPrefix, Limits{Denials: 1, WildcardBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, query []byte, udp bool) {
		var reply []byte
		cost.Input(t, query, func(query []byte) { reply = r.answer(query, udp, netip.AddrPort{}) })
		if reply == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("reply %x: %v", reply, err)
		}
		if m.Id != binary.BigEndian.Uint16(query) || !m.Response {
			t.Fatalf("reply to another query: %v", &m)
		}
		if udp && len(reply) > udpSize {
			t.Fatalf("%d bytes over UDP", len(reply))
		}
		for _, rr := range m.Answer {
			a, ok := rr.(*dns.A)
			if !ok || a.A.IsLoopback() {
				continue
			}
			addr, _ := netip.AddrFromSlice(a.A.To4())
			name, _ := r.Table.Name(addr)
			if name != "example.com" && !strings.HasSuffix(name, ".wild.test") {
				t.Fatalf("%s has %s", name, addr)
			}
			if clean, err := api.NetName(m.Question[0].Name); err != nil || clean != name {
				t.Fatalf("asked for %q, answered for %q", m.Question[0].Name, name)
			}
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	r := start(b, allow("example.com", "*.wild.test"), DefaultPrefix, Limits{})
	m := new(dns.Msg)
	m.SetQuestion("a.wild.test.", dns.TypeA)
	edns(m)
	query, err := m.Pack()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r.answer(query, true, netip.AddrPort{}) == nil {
			b.Fatal("no answer")
		}
	}
}
