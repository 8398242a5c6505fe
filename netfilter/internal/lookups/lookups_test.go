package lookups

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
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
	s := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(started) },
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
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
				m.Answer = []dns.RR{&dns.CNAME{Hdr: alias, Target: "real.test."},
					&dns.A{Hdr: a, A: net.IPv4(192, 0, 2, 1)}}
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
		found, err := l.Lookup(t.Context(), name)
		addrs := found.Addrs
		if name != "missing.test." && !slices.Equal(found.Aliases, []string{"real.test"}) {
			t.Errorf("%s: aliases %q", name, found.Aliases)
		}
		if want := netip.MustParseAddr("192.0.2.1"); name != "missing.test." &&
			(err != nil || len(addrs) != 1 || addrs[0] != want) {
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

// TestTogether: all who ask for a name at once are told about its aliases; who gives up leaves the others their answer.
func TestTogether(t *testing.T) {
	var ttl atomic.Uint32
	r, _ := server(t, &ttl)
	l := New(r)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx := t.Context()
			if i%5 == 0 {
				ctx = gone
			}
			found, err := l.Lookup(ctx, "a.test.")
			if i%5 != 0 && (err != nil || len(found.Addrs) != 1 ||
				!slices.Equal(found.Aliases, []string{"real.test"})) {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
	wg.Wait()
	if len(l.flights) != 0 {
		t.Errorf("%d lookups are left", len(l.flights))
	}
}

// TestStream: aliases are seen in what comes by TCP, in whatever pieces.
func TestStream(t *testing.T) {
	m := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
	m.Answer = []dns.RR{
		&dns.CNAME{Hdr: dns.RR_Header{Name: "a.test.", Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 7},
			Target: "B.test."},
		&dns.A{Hdr: dns.RR_Header{Name: "b.test.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 9},
			A: net.IPv4(192, 0, 2, 1)},
	}
	text, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte{byte(len(text) >> 8), byte(len(text))}, text...)
	for size := 1; size <= len(text); size++ {
		here, there := net.Pipe()
		go func() { _, _ = there.Write(text); _ = there.Close() }()
		seen := &life{}
		s := &stream{Conn: here, life: seen}
		for buf := make([]byte, size); ; {
			if _, err := s.Read(buf); err != nil {
				break
			}
		}
		if got := seen.names(); !slices.Equal(got, []string{"b.test"}) || seen.ttl != 7*time.Second {
			t.Fatalf("in pieces of %d: %q, %v", size, got, seen.ttl)
		}
		_ = here.Close()
	}
}
