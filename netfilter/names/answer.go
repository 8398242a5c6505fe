package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// ttl is for how long programs may keep an address, in seconds. It never changes;
	// the time is for names that a new policy allows or blocks, and a connection is
	// checked whatever was cached.
	ttl = 60
	// udpSize is what we take and send over UDP (the DNS flag day's size; loopback
	// would carry more, but nothing of ours is longer).
	udpSize = 1232
	// plainSize is the limit without EDNS (RFC 1035).
	plainSize = 512
	// textSize bounds the explanation in a refusal, so that it fits in plainSize with
	// the longest name.
	textSize = 160
)

// answer is the reply to a query, nil for none.
func (s *Server) answer(query []byte, udp bool, from netip.AddrPort) []byte {
	const headerSize = 12
	// Never reply to a reply: two servers would talk for ever.
	if len(query) < headerSize || query[2]&0x80 != 0 {
		return nil
	}
	s.counts.queries.Add(1)
	header := dns.MsgHdr{
		Id: uint16(query[0])<<8 | uint16(query[1]), Response: true, RecursionAvailable: true,
		Opcode: int(query[2]>>3) & 0xf, RecursionDesired: query[2]&1 != 0,
	}
	var m dns.Msg
	switch {
	case header.Opcode != dns.OpcodeQuery:
		header.Rcode = dns.RcodeNotImplemented
	// Counted before anything is parsed: what is longer than a question and its options
	// is not a query, and need not be unpacked to be refused.
	case query[4] != 0 || query[5] != 1 || query[6]|query[7]|query[8]|query[9] != 0 || query[10] != 0 || query[11] > 2,
		m.Unpack(query) != nil, len(m.Question) != 1:
		header.Rcode = dns.RcodeFormatError
	default:
		return s.reply(&m, header, udp, from)
	}
	reply, err := (&dns.Msg{MsgHdr: header}).Pack()
	if err != nil {
		return nil
	}
	return reply
}

// verdict is what a query is answered with.
type verdict struct {
	rcode  int
	answer dns.RR
	// why is for a refusal, and becomes an extended error (RFC 8914).
	why string
}

func (s *Server) reply(m *dns.Msg, header dns.MsgHdr, udp bool, from netip.AddrPort) []byte {
	r := &dns.Msg{MsgHdr: header, Question: m.Question, Compress: true}
	size, opt := plainSize, m.IsEdns0()
	var ext *dns.OPT
	if opt != nil {
		size = min(max(int(opt.UDPSize()), plainSize), udpSize)
		r.SetEdns0(udpSize, opt.Do())
		ext = r.IsEdns0()
	}
	var v verdict
	switch q := m.Question[0]; {
	case opt != nil && opt.Version() != 0:
		v.rcode = dns.RcodeBadVers
	case q.Qclass != dns.ClassINET:
		v.rcode = dns.RcodeRefused
	default:
		v = s.decide(q, from)
	}
	r.Rcode = v.rcode
	if v.answer != nil {
		r.Answer = []dns.RR{v.answer}
	}
	if v.why != "" && ext != nil {
		ext.Option = append(ext.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked,
			ExtraText: v.why[:min(len(v.why), textSize)]})
	}
	if udp {
		r.Truncate(size)
	}
	reply, err := r.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// decide answers a question. Allowed names have an A record and no other: what would
// carry data in (TXT, MX), lead around the proxy (HTTPS, SVCB, with their addresses and
// keys to hide names with) or to addresses of another family (AAAA) is empty. That the
// name exists without them is NOERROR; with NXDOMAIN for one type, some resolvers give
// up on all.
func (s *Server) decide(q dns.Question, from netip.AddrPort) verdict {
	if q.Name == "." {
		return verdict{} // the root exists
	}
	// The library writes bytes that are not printable, and dots in labels, with a
	// backslash: NetName knows none, so that a label cannot pass for something else.
	name, err := api.NetName(q.Name)
	if err != nil {
		// Numbers (names for what is an address already) are asked by programs that
		// try everything; but they are wrong whatever the policy is.
		return s.refuse(q, from, printable(q.Name), policy.Decision{Rule: "not a name", Why: reason(err)})
	}
	if v, ok := s.local(name, q); ok {
		return v
	}
	rules := s.Rules()
	d := rules.Name(name)
	if !d.Allow {
		if owner := service(name); owner != name && q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA {
			// apt and others ask for _http._tcp.NAME first: that is no denial of NAME, which is what should be allowed
			// where it is refused.
			if d = rules.Name(owner); d.Allow {
				return s.noRecord(q, from, name, dns.RcodeNameError)
			}
			name = owner
		}
		return s.refuse(q, from, name, d)
	}
	if q.Qtype != dns.TypeA {
		return s.noRecord(q, from, name, dns.RcodeSuccess)
	}
	s.records.note(name, func(a *asked) { a.four = time.Now() })
	if _, known := s.Table.Lookup(name); !known && belowWildcard(d) && !s.wildcard.AllowN(time.Now(), len(name)) {
		return s.refuse(q, from, name, policy.Decision{
			Rule:       "lookup budget",
			Why:        fmt.Sprintf("too many new names below a wildcard (%s): names can carry data out", d.Rule),
			HowToAllow: "--allow " + name,
		})
	}
	a, err := s.Table.Address(name)
	switch {
	case errors.Is(err, ErrExhausted):
		return s.refuse(q, from, name,
			policy.Decision{Rule: "name limit", Why: "the sandbox has looked up too many names: " + err.Error()})
	case err != nil:
		s.deny(q, from, name, policy.Decision{Rule: "name table", Why: "the address could not be recorded: " +
			err.Error()}, "SERVFAIL")
		return verdict{rcode: dns.RcodeServerFailure}
	}
	if s.Grant != nil {
		if err := s.Grant(name, a); err != nil {
			why := "the kernel could not be told about the address: " + err.Error()
			s.deny(q, from, name, policy.Decision{Rule: "eBPF", Why: why}, "SERVFAIL")
			return verdict{rcode: dns.RcodeServerFailure}
		}
	}
	return verdict{answer: &dns.A{Hdr: header(q, dns.TypeA), A: a.AsSlice()}}
}

func header(q dns.Question, rrtype uint16) dns.RR_Header {
	// The name as it was asked, upper case and all: clients that randomise it (0x20)
	// compare.
	return dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// refuse says that a name does not exist, and why. REFUSED would make musl wait for
// another answer, SERVFAIL others speak of a temporary failure.
func (s *Server) refuse(q dns.Question, from netip.AddrPort, name string, d policy.Decision) verdict {
	s.deny(q, from, name, d, "NXDOMAIN")
	why := d.Why
	if d.HowToAllow != "" {
		why += " (" + d.HowToAllow + ")"
	}
	return verdict{rcode: dns.RcodeNameError, why: why}
}

// local answers for names that are no policy's business: the sandbox's own loopback
// (RFC 6761), and the names of addresses.
func (s *Server) local(name string, q dns.Question) (verdict, bool) {
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		switch q.Qtype {
		case dns.TypeA:
			return verdict{answer: &dns.A{Hdr: header(q, dns.TypeA), A: netip.AddrFrom4([4]byte{127, 0, 0, 1}).
				AsSlice()}}, true
		case dns.TypeAAAA:
			return verdict{answer: &dns.AAAA{Hdr: header(q, dns.TypeAAAA), AAAA: netip.IPv6Loopback().AsSlice()}}, true
		}
		return verdict{}, true
	case strings.HasSuffix(name, ".in-addr.arpa"), strings.HasSuffix(name, ".ip6.arpa"):
		a, ok := reverse(name)
		if !ok {
			return verdict{rcode: dns.RcodeNameError}, true
		}
		target := "localhost"
		if !a.IsLoopback() {
			if target, ok = s.Table.Name(a); !ok {
				return verdict{rcode: dns.RcodeNameError}, true
			}
		}
		if q.Qtype != dns.TypePTR {
			return verdict{}, true
		}
		return verdict{answer: &dns.PTR{Hdr: header(q, dns.TypePTR), Ptr: target + "."}}, true
	}
	return verdict{}, false
}

// reverse is the address that a name below in-addr.arpa or ip6.arpa stands for.
func reverse(name string) (netip.Addr, bool) {
	if digits, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(digits, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
		return a, err == nil
	}
	labels := strings.Split(strings.TrimSuffix(name, ".ip6.arpa"), ".")
	if len(labels) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, l := range labels {
		n, err := strconv.ParseUint(l, 16, 4)
		if err != nil || len(l) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		b[at/2] |= byte(n) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(b), true
}

// service is the name that a name of services (_http._tcp.NAME) belongs to.
func service(name string) string {
	for strings.HasPrefix(name, "_") {
		_, rest, ok := strings.Cut(name, ".")
		if !ok {
			break
		}
		name = rest
	}
	return name
}

// belowWildcard says that a name was allowed by an entry that allows others with it, as
// opposed to one that names it, and to a mode in which names carry nothing that
// connections could not.
func belowWildcard(d policy.Decision) bool {
	return strings.HasPrefix(d.Rule, "allow ") && strings.Contains(d.Rule, "*.")
}

// reason is why a name is none, without the field that an API error begins with.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), "name: ")
}

// printable is a name that is none, for people: what is not ASCII is escaped already.
func printable(name string) string { return strings.TrimSuffix(name, ".") }
