package lookups

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// server answers with a time to live, and counts questions for addresses of IPv4.
func server(t *testing.T, ttl *atomic.Uint32) (r *net.Resolver, asked *atomic.Int32) {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = &atomic.Int32{}
	started, ended := make(chan struct{}), make(chan struct{})
	s := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name := q.Question[0].Name
		switch {
		case name == "missing.test.":
			m.Rcode = dns.RcodeNameError
			asked.Add(1)
		case q.Question[0].Qtype == dns.TypeA:
			asked.Add(1)
			alias := dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 7200}
			a := dns.RR_Header{Name: "real.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl.Load()}
			m.Answer = []dns.RR{&dns.CNAME{Hdr: alias, Target: "real.test."}, &dns.A{Hdr: a, A: net.IPv4(192, 0, 2, 1)}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, pc.LocalAddr().String())
	}}, asked
}

func TestLookup(t *testing.T) {
	var ttl atomic.Uint32
	r, asked := server(t, &ttl)
	l, now := New(r), time.Now()
	l.now = func() time.Time { return now }
	// look looks up a name, and says whether the server was asked.
	look := func(name string) bool {
		t.Helper()
		before := asked.Load()
		addrs, err := l.Lookup(t.Context(), name)
		if want := netip.MustParseAddr("192.0.2.1"); name != "missing.test." && (err != nil || len(addrs) != 1 || addrs[0] != want) {
			t.Errorf("%s: %v, %v", name, addrs, err)
		}
		return asked.Load() > before
	}
	expect := func(what, name string, want bool) {
		t.Helper()
		if look(name) != want {
			t.Errorf("%s: the server was asked: %v, want %v", what, !want, want)
		}
	}
	look("a.test.")
	expect("a time to live of 0", "a.test.", true)
	ttl.Store(2)
	look("a.test.")
	now = now.Add(1900 * time.Millisecond)
	expect("within 2 s", "a.test.", false)
	now = now.Add(100 * time.Millisecond)
	expect("after them", "a.test.", true)
	ttl.Store(3600)
	l.Forget("a.test.")
	expect("forgotten", "a.test.", true)
	now = now.Add(longest - 1)
	expect("within the longest time", "a.test.", false)
	now = now.Add(1)
	expect("after it, although the answer would hold", "a.test.", true)
	look("missing.test.")
	expect("a name that is not there", "missing.test.", true)
	for i := range 2 * most {
		look(fmt.Sprintf("n%d.test.", i))
	}
	if len(l.known) > most {
		t.Errorf("%d names are remembered", len(l.known))
	}
}
