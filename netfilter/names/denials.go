package names

import (
	"net/netip"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/hutch-sh/hutch/netfilter/policy"
)

// denials decides which refused lookups are reported. A resolver asks for several types
// of one name at a time (A, AAAA, HTTPS): that is one refusal. The same type again is a
// new attempt, perhaps of another command, and reported again.
type denials struct {
	limit *rate.Limiter

	mu         sync.Mutex
	asked      map[string]types
	suppressed int
}

// types is the set of types that a name was asked for since its last report.
type types uint8

// setOf is the bit of a type; all that clients never ask together share one.
func setOf(qtype uint16) types {
	switch qtype {
	case dns.TypeA:
		return 1
	case dns.TypeAAAA:
		return 2
	case dns.TypeHTTPS:
		return 4
	}
	return 8
}

// recent is how many names are remembered: enough for what runs at one time.
const recent = 256

// report says whether to report a refusal, and how many before it were not for being
// too many.
func (d *denials) report(name string, qtype uint16) (suppressed int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bit := setOf(qtype)
	if seen := d.asked[name]; seen != 0 && seen&bit == 0 {
		d.asked[name] = seen | bit
		return 0, false
	}
	if len(d.asked) >= recent || d.asked == nil {
		d.asked = map[string]types{}
	}
	d.asked[name] = bit
	return d.admit()
}

// admit says the same of a refusal that is told in any case; mu is held.
func (d *denials) admit() (suppressed int, ok bool) {
	if !d.limit.Allow() {
		d.suppressed++
		return 0, false
	}
	suppressed, d.suppressed = d.suppressed, 0
	return suppressed, true
}

// deny tells of a question with an answer that is of no use.
func (s *Server) deny(q dns.Question, from netip.AddrPort, name string, d policy.Decision, answer string) {
	s.counts.denied.Add(1)
	suppressed, ok := s.denials.report(name, q.Qtype)
	if !ok {
		return
	}
	s.Denied(Denial{
		Client: from, Name: name, Type: dns.Type(q.Qtype).String(), Answer: answer,
		Rule: d.Rule, Why: d.Why, HowToAllow: d.HowToAllow, Suppressed: suppressed,
	})
}
