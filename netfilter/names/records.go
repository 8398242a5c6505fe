package names

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/hutch-sh/hutch/netfilter/policy"
)

// records notes which records of allowed names are asked for that a sandbox does not get. They are answered as if there
// were none, which many take for the truth: a program that needs them says anything but that.
type records struct {
	mu  sync.Mutex
	six map[string]asked // names that were asked for IPv6 addresses
}

// asked is when a name was asked for its addresses last. Resolvers ask for both kinds at a time, in either order.
type asked struct {
	four, six time.Time
	from      netip.AddrPort
}

// noData is an answer that is empty (RFC 2308).
const noData = "NODATA"

// together is within what time two questions are of one attempt.
const together = 2 * time.Second

// noRecord answers a question for a record other than A of a name that the policy allows. It is told, but for what is
// asked for along with others by programs that do well without: who needs nothing but IPv6 is found out later, by
// Unanswered.
func (s *Server) noRecord(q dns.Question, from netip.AddrPort, name string, rcode int) verdict {
	v := verdict{rcode: rcode}
	switch q.Qtype {
	case dns.TypeAAAA:
		s.records.note(name, func(a *asked) { a.six, a.from = time.Now(), from })
		return v
	case dns.TypeHTTPS, dns.TypeSVCB, dns.TypeSOA, dns.TypeNS:
		return v
	case dns.TypeSRV:
		// apt asks for it first
		if service, _, ok := strings.Cut(name, "._tcp."); ok && (service == "_http" || service == "_https") {
			return v
		}
	}
	kind := dns.Type(q.Qtype).String()
	d := policy.Decision{Rule: "record type", Why: kind +
		" records are not answered in a sandbox: of an allowed name it gets an address"}
	if q.Qtype == dns.TypeSRV {
		d.Why += "; name the server and its port instead, and allow them (mongodb://HOST:PORT in place of mongodb+srv://)"
	}
	s.deny(q, from, name, d, noData)
	v.why = d.Why
	return v
}

// note changes what is known of a name.
func (r *records) note(name string, change func(*asked)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.six) >= recent || r.six == nil {
		r.six = map[string]asked{}
	}
	a := r.six[name]
	change(&a)
	r.six[name] = a
}

// Unanswered tells of the names that were asked for IPv6 addresses since a time, and for nothing else then: a program
// that has failed may want these. Each is told once.
func (s *Server) Unanswered(since time.Time) {
	alone := map[string]netip.AddrPort{}
	s.records.mu.Lock()
	for name, a := range s.records.six {
		if !a.six.IsZero() && !a.six.Before(since) && a.six.Sub(a.four).Abs() > together {
			alone[name] = a.from
		}
	}
	clear(s.records.six)
	s.records.mu.Unlock()
	for name, from := range alone {
		s.counts.denied.Add(1)
		s.denials.mu.Lock()
		suppressed, ok := s.denials.admit()
		s.denials.mu.Unlock()
		if ok {
			s.Denied(Denial{
				Client: from, Name: name, Type: "AAAA", Answer: noData, Rule: "record type", Suppressed: suppressed,
				Why: "AAAA records are not answered in a sandbox: it reaches allowed names by IPv4, wherever they are; leave out what asks for IPv6 alone (wget -6)",
			})
		}
	}
}
