package names

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// resolver is a Server under test, on real sockets, with what it denied.
type resolver struct {
	*Server
	t        testing.TB
	udp, tcp string
	rules    atomic.Pointer[policy.Rules]

	mu     sync.Mutex
	denied []Denial
}

func compile(t testing.TB, p api.NetPolicy) *policy.Rules {
	t.Helper()
	rules, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func allow(names ...string) api.NetPolicy { return api.NetPolicy{Mode: api.NetAllow, Allow: names} }

func start(t testing.TB, p api.NetPolicy, prefix netip.Prefix, limits Limits) *resolver {
	t.Helper()
	r := &resolver{t: t}
	r.rules.Store(compile(t, p))
	r.Server = NewServer(Config{
		Table: open(t, filepath.Join(t.TempDir(), "names"), prefix, "seed"),
		Rules: r.rules.Load,
		Denied: func(d Denial) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.denied = append(r.denied, d)
		},
		Limits: limits,
	})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.udp, r.tcp = pc.LocalAddr().String(), l.Addr().String()
	go r.ServeUDP(pc)
	go r.ServeTCP(l)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *resolver) denials() []Denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied
}

// ask sends a query and returns the reply.
func (r *resolver) ask(network, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	r.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	for _, c := range change {
		c(m)
	}
	at := r.udp
	if network == "tcp" {
		at = r.tcp
	}
	client := dns.Client{Net: network, Timeout: 10 * time.Second}
	reply, _, err := client.Exchange(m, at)
	if err != nil {
		r.t.Fatalf("%s %s: %v", name, dns.Type(qtype), err)
	}
	return reply
}

func edns(m *dns.Msg) { m.SetEdns0(4096, false) }

func aOf(m *dns.Msg) string {
	if len(m.Answer) == 1 {
		if a, ok := m.Answer[0].(*dns.A); ok {
			return a.A.String()
		}
	}
	return ""
}

// TestAnswers: each kind of question, about names that are allowed and that are not.
func TestAnswers(t *testing.T) {
	r := start(t, allow("example.com", "*.wild.test"), DefaultPrefix, Limits{})
	for _, network := range []string{"udp", "tcp"} {
		for _, name := range []string{"example.com.", "EXAMPLE.cOm.", "a.wild.test.", "a.b.c.wild.test."} {
			reply := r.ask(network, name, dns.TypeA, edns)
			a, err := netip.ParseAddr(aOf(reply))
			if reply.Rcode != dns.RcodeSuccess || err != nil || !DefaultPrefix.Contains(a) {
				t.Errorf("%s A %s: %v", network, name, reply)
				continue
			}
			if got, _ := r.Table.Name(a); got != strings.TrimSuffix(strings.ToLower(name), ".") {
				t.Errorf("%s stands for %q, asked for %s", a, got, name)
			}
			if reply.Question[0].Name != name || reply.Answer[0].Header().Name != name {
				t.Errorf("%s: the reply spells it %s and %s", name, reply.Question[0].Name,
					reply.Answer[0].Header().Name)
			}
			for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeTXT, dns.TypeMX,
				dns.TypeANY, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME} {
				if reply := r.ask(network, name, qtype); reply.Rcode != dns.RcodeSuccess || len(reply.Answer)+
					len(reply.Ns)+len(reply.Extra) != 0 {
					t.Errorf("%s %s: %v", name, dns.Type(qtype), reply)
				}
			}
		}
		for _, name := range []string{"evil.test.", "wild.test.", "xwild.test.", "example.com.evil.test.",
			"notexample.com."} {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeANY} {
				reply := r.ask(network, name, qtype, edns)
				if reply.Rcode != dns.RcodeNameError || len(reply.Answer) != 0 {
					t.Errorf("%s %s: %v", name, dns.Type(qtype), reply)
					continue
				}
				ede, ok := reply.IsEdns0().Option[0].(*dns.EDNS0_EDE)
				if !ok || ede.InfoCode != dns.ExtendedErrorCodeBlocked || !strings.Contains(ede.ExtraText, "--allow") {
					t.Errorf("%s %s: extended error %v", name, dns.Type(qtype), reply.IsEdns0())
				}
			}
		}
	}
	if len(r.denials()) == 0 {
		t.Error("no denials")
	}
}

// TestDenials: one for the types that a resolver asks for together, another one for
// another attempt.
func TestDenials(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{})
	for attempt := 1; attempt <= 2; attempt++ {
		r.ask("udp", "evil.test.", dns.TypeA)
		r.ask("udp", "evil.test.", dns.TypeAAAA)
		r.ask("udp", "evil.test.", dns.TypeHTTPS)
		if got := r.denials(); len(got) != attempt {
			t.Fatalf("attempt %d: %d denials: %+v", attempt, len(got), got)
		}
	}
	got := r.denials()[0]
	if got.Name != "evil.test" || got.Type != "A" || got.Rule != "mode allow" ||
		got.HowToAllow != "--allow evil.test" || got.Why == "" || !got.Client.Addr().IsLoopback() {
		t.Errorf("%+v", got)
	}
	r.ask("udp", "_http._tcp.example.com.", dns.TypeSRV)
	r.ask("udp", "example.com.", dns.TypeHTTPS)
	if n := len(r.denials()); n != 2 {
		t.Errorf("%d denials: asking for an allowed name's services is none", n)
	}
	if reply := r.ask("udp", "_http._tcp.example.com.", dns.TypeA); reply.Rcode != dns.RcodeNameError ||
		len(r.denials()) != 3 {
		t.Errorf("an address below a name: %v, %d denials", reply, len(r.denials()))
	}
	if _, denied := r.Counts(); denied != 7 {
		t.Errorf("%d lookups counted as denied", denied)
	}
}

func TestDenialFlood(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{Denials: 1})
	for i := range 100 {
		r.ask("udp", fmt.Sprintf("n%d.evil.test.", i), dns.TypeA)
	}
	if n := len(r.denials()); n < 10 || n > 50 {
		t.Errorf("%d of 100 denials were reported, with 10 at once", n)
	}
	if _, denied := r.Counts(); denied != 100 {
		t.Errorf("%d lookups counted as denied", denied)
	}
}

// TestPolicyChange: answers follow the rules in force; the address stays the name's.
func TestPolicyChange(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{})
	before := aOf(r.ask("udp", "example.com.", dns.TypeA))
	r.rules.Store(compile(t, allow("other.test")))
	if reply := r.ask("udp", "example.com.", dns.TypeA); reply.Rcode != dns.RcodeNameError {
		t.Errorf("a name that is no longer allowed: %v", reply)
	}
	r.rules.Store(compile(t, api.NetPolicy{Mode: api.NetOpen, Block: []string{"*.evil.test"}}))
	if after := aOf(r.ask("udp", "example.com.", dns.TypeA)); before != after || after == "" {
		t.Errorf("%q before, %q after", before, after)
	}
	if reply := r.ask("udp", "a.evil.test.", dns.TypeA); reply.Rcode != dns.RcodeNameError {
		t.Errorf("a blocked name in mode open: %v", reply)
	}
	if reply := r.ask("udp", "any.name.invalid.", dns.TypeA); aOf(reply) == "" {
		t.Errorf("any name in mode open: %v", reply)
	}
}

// TestStrictLabels: bytes that are in no host name, however the rest looks.
func TestStrictLabels(t *testing.T) {
	r := start(t, allow("*.wild.test", "example.com"), DefaultPrefix, Limits{})
	labels := func(ls ...string) (wire []byte) {
		for _, l := range ls {
			wire = append(append(wire, byte(len(l))), l...)
		}
		return append(wire, 0)
	}
	for what, name := range map[string][]byte{
		"a NUL":               labels("evil.com\x00", "wild", "test"),
		"a NUL alone":         labels("\x00", "wild", "test"),
		"a dot in a label":    labels("evil.com", "wild", "test"),
		"a backslash":         labels("a\\", "wild", "test"),
		"a space":             labels("a b", "wild", "test"),
		"a letter of Latin-1": labels("b\xfccher", "wild", "test"),
		"UTF-8":               labels("bücher", "wild", "test"),
		"a star":              labels("*", "wild", "test"),
		"a slash":             labels("a/b", "wild", "test"),
		"an octal address":    labels("0177", "0", "0", "1"),
		"a hex address":       labels("0x7f000001"),
		"a line feed":         labels("a\nb", "wild", "test"),
		"a dot for example":   labels("example.com"),
	} {
		query := append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, name...)
		query = append(query, 0, 1, 0, 1)
		var reply dns.Msg
		if err := reply.Unpack(r.answer(query, true, netip.AddrPort{})); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if reply.Rcode != dns.RcodeNameError || len(reply.Answer) != 0 || reply.Id != 7 {
			t.Errorf("%s: %v", what, &reply)
		}
	}
	if n := len(r.denials()); n == 0 {
		t.Error("no denials")
	}
	if reply := r.ask("udp", "xn--bcher-kva.wild.test.", dns.TypeA); aOf(reply) == "" {
		t.Errorf("an IDN as ASCII: %v", reply)
	}
	if reply := r.ask("udp", "_dmarc.wild.test.", dns.TypeA); aOf(reply) == "" {
		t.Errorf("an underscore: %v", reply)
	}
}

func TestLocalNames(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{})
	for _, name := range []string{"localhost.", "LOCALHOST.", "db.localhost."} {
		if got := aOf(r.ask("udp", name, dns.TypeA)); got != "127.0.0.1" {
			t.Errorf("%s A: %q", name, got)
		}
		reply := r.ask("udp", name, dns.TypeAAAA)
		if aaaa, ok := reply.Answer[0].(*dns.AAAA); !ok || !aaaa.AAAA.IsLoopback() {
			t.Errorf("%s AAAA: %v", name, reply)
		}
		if reply := r.ask("udp", name, dns.TypeTXT); reply.Rcode != 0 || len(reply.Answer) != 0 {
			t.Errorf("%s TXT: %v", name, reply)
		}
	}
	a := aOf(r.ask("udp", "example.com.", dns.TypeA))
	for addr, want := range map[string]string{a: "example.com.", "127.0.0.1": "localhost.", "::1": "localhost."} {
		arpa, err := dns.ReverseAddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		reply := r.ask("udp", arpa, dns.TypePTR)
		if len(reply.Answer) != 1 || reply.Answer[0].(*dns.PTR).Ptr != want {
			t.Errorf("%s: %v, want %s", addr, reply, want)
		}
	}
	for _, arpa := range []string{"1.0.18.198.in-addr.arpa.", "8.8.8.8.in-addr.arpa.", "x.in-addr.arpa.",
		"1.0.0.127.evil.in-addr.arpa.", strings.Repeat("0.", 32) + "ip6.arpa."} {
		if reply := r.ask("udp", arpa, dns.TypePTR); reply.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v", arpa, reply)
		}
	}
	if reply := r.ask("udp", ".", dns.TypeNS); reply.Rcode != 0 || len(reply.Answer) != 0 {
		t.Errorf("the root: %v", reply)
	}
	if got := r.denials(); len(got) != 0 {
		t.Errorf("denials: %+v", got)
	}
}

// TestHeaders: what is no query of ours, and the sizes of replies.
func TestHeaders(t *testing.T) {
	r := start(t, allow("example.com", "*.wild.test"), DefaultPrefix, Limits{})
	for what, c := range map[string]struct {
		change func(*dns.Msg)
		rcode  int
	}{
		"another opcode": {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"notify":         {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"another class":  {func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, dns.RcodeRefused},
		"two questions": {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
			dns.RcodeFormatError},
		"no question": {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"an answer in it": {func(m *dns.Msg) {
			m.Answer = []dns.RR{&dns.A{Hdr: header(m.Question[0], dns.TypeA),
				A: net.IPv4zero}}
		}, dns.RcodeFormatError},
		"EDNS of version 1": {func(m *dns.Msg) { edns(m); m.IsEdns0().SetVersion(1) }, dns.RcodeBadVers},
		"a client's cookie": {func(m *dns.Msg) {
			edns(m)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}}
		}, dns.RcodeSuccess},
		"a query as any":     {func(*dns.Msg) {}, dns.RcodeSuccess},
		"no recursion asked": {func(m *dns.Msg) { m.RecursionDesired = false }, dns.RcodeSuccess},
		"truncated":          {func(m *dns.Msg) { m.Truncated = true }, dns.RcodeSuccess},
		"DNSSEC wanted":      {func(m *dns.Msg) { m.SetEdns0(1232, true) }, dns.RcodeSuccess},
	} {
		m := new(dns.Msg)
		m.SetQuestion("example.com.", dns.TypeA)
		c.change(m)
		query, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var reply dns.Msg
		if err := reply.Unpack(r.answer(query, true, netip.AddrPort{})); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if reply.Rcode != c.rcode || !reply.Response || reply.Id != m.Id || reply.AuthenticatedData {
			t.Errorf("%s: %v", what, &reply)
		}
		if (reply.IsEdns0() != nil) != (m.IsEdns0() != nil && c.rcode != dns.RcodeFormatError) {
			t.Errorf("%s: EDNS in one and not in the other: %v", what, &reply)
		}
	}
	long := strings.Repeat(strings.Repeat("a", 61)+".", 3) + strings.Repeat("b", 50) + ".evil.test."
	for _, size := range []uint16{0, 1, 512, 4096, 65535} {
		reply := r.ask("udp", long, dns.TypeA, func(m *dns.Msg) { m.SetEdns0(size, false) })
		packed, err := reply.Pack()
		if err != nil || len(packed) > max(int(size), 512) || len(packed) > udpSize || reply.Truncated {
			t.Errorf("EDNS size %d: a reply of %d bytes, truncated %v, %v", size, len(packed), reply.Truncated, err)
		}
	}
	for _, junk := range [][]byte{nil, {1}, make([]byte, 11),
		append([]byte{0, 1, 0x80, 0, 0, 1}, make([]byte, 20)...)} {
		if reply := r.answer(junk, true, netip.AddrPort{}); reply != nil {
			t.Errorf("%x: answered with %x", junk, reply)
		}
	}
}

// TestWildcardBudget: a sandbox may not learn names below a wildcard without end, and may
// go on with those it has.
func TestWildcardBudget(t *testing.T) {
	r := start(t, allow("*.wild.test", "exact.wild.test", "example.com"), DefaultPrefix,
		Limits{WildcardBytes: 500, WildcardRate: 1})
	allowed := 0
	for i := range 100 {
		name := fmt.Sprintf("%030d.wild.test.", i)
		reply := r.ask("udp", name, dns.TypeA, edns)
		if aOf(reply) != "" {
			allowed++
		} else if reply.Rcode != dns.RcodeNameError {
			t.Fatal(reply)
		}
	}
	if allowed < 10 || allowed > 20 {
		t.Errorf("%d names of 40 bytes with a budget of 500", allowed)
	}
	if d := r.denials(); len(d) == 0 || d[0].Rule != "lookup budget" ||
		!strings.Contains(d[0].Why, "allow *.wild.test") {
		t.Errorf("denials: %+v", d)
	}
	for _, name := range []string{fmt.Sprintf("%030d.wild.test.", 0), "exact.wild.test.", "example.com."} {
		if reply := r.ask("udp", name, dns.TypeA); aOf(reply) == "" {
			t.Errorf("%s, without budget: %v", name, reply)
		}
	}
}

// TestExhausted: with no addresses left new names fail and old ones do not.
func TestExhausted(t *testing.T) {
	r := start(t, api.NetPolicy{Mode: api.NetOpen}, small, Limits{})
	failed := 0
	for i := range 256 {
		if reply := r.ask("udp", fmt.Sprintf("n%d.test.", i), dns.TypeA); aOf(reply) == "" {
			failed++
		}
	}
	if want := reserved + 1; failed != want {
		t.Errorf("%d of 256 names failed in a /24, want %d", failed, want)
	}
	if aOf(r.ask("udp", "n0.test.", dns.TypeA)) == "" {
		t.Error("a name that has an address has none now")
	}
	if d := r.denials(); len(d) != failed || d[0].Rule != "name limit" {
		t.Errorf("%d denials, the first %+v", len(d), d[0])
	}
}

// TestTCPStreams: several queries on a connection, lengths that promise too much, and
// more connections than there may be.
func TestTCPStreams(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{})
	conn, err := dns.Dial("tcp", r.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := new(dns.Msg)
	for range 3 {
		m.SetQuestion("example.com.", dns.TypeA)
		if err := conn.WriteMsg(m); err != nil {
			t.Fatal(err)
		}
		if reply, err := conn.ReadMsg(); err != nil || aOf(reply) == "" {
			t.Fatal(reply, err)
		}
	}
	if _, err := conn.Conn.Write(binary.BigEndian.AppendUint16(nil, 65535)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ReadMsg(); err == nil {
		t.Error("a query of 65535 bytes was waited for")
	}

	var conns []net.Conn
	for range tcpConns + 1 {
		c, err := net.Dial("tcp", r.tcp)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	// One of them was one too many; the others wait.
	ended := make(chan error, len(conns))
	for _, c := range conns {
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
	}
	if err := <-ended; err == nil {
		t.Error("a connection says something unasked")
	}
	if reply := r.ask("udp", "example.com.", dns.TypeA); aOf(reply) == "" {
		t.Errorf("UDP meanwhile: %v", reply)
	}
}

// TestRateLimit: queries beyond the limit wait, and do not fail.
func TestRateLimit(t *testing.T) {
	r := start(t, allow("example.com"), DefaultPrefix, Limits{Queries: 20})
	begin := time.Now()
	for range 30 {
		if aOf(r.ask("udp", "example.com.", dns.TypeA)) == "" {
			t.Fatal("no answer")
		}
	}
	if took := time.Since(begin); took < 400*time.Millisecond {
		t.Errorf("30 queries at 20 a second took %s", took)
	}
}
