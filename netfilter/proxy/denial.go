package proxy

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hutch-sh/hutch/netfilter/policy"
)

// Denial is a connection, request or datagram that was refused.
type Denial struct {
	Client  netip.AddrPort // who tried, in the sandbox
	Proto   policy.Proto
	Name    string     // "" without one
	Address netip.Addr // that the program connected to, or the one behind the name that was refused
	Port    uint16
	Rule    string
	Why     string
	// HowToAllow is a flag, or "" where nothing helps.
	HowToAllow string
	// Errno is what the program sees: ECONNRESET, or what it got in its own protocol.
	Errno string
	// Suppressed counts the refusals before this one that were too many to report.
	Suppressed int
}

// refusal is an error that a program is told, and its denial.
type refusal struct {
	policy.Decision
	reply   reply
	address netip.Addr // other than the destination's
}

func (r *refusal) Error() string { return r.Rule + ": " + r.Why }

// reply is how a refusal is told.
type reply uint8

const (
	byReset     reply = iota
	byAlert           // TLS, instead of the server's first record
	byForbidden       // HTTP, instead of a response
	byBadRequest
	byRefusing // instead of accepting
	byUnreachable
	byOmission // of what the server is not offered, while the request goes on
)

func (r reply) String() string {
	return [...]string{"ECONNRESET", "TLS alert 112 (unrecognized_name)", "HTTP 403", "HTTP 400", "ECONNREFUSED",
		"EHOSTUNREACH", "no upgrade"}[r]
}

func (p *Proxy) deny(d Denial) {
	p.counts.of(d.Rule).denials.Add(1)
	p.mu.Lock()
	ok := p.denials.Allow()
	if ok {
		d.Suppressed, p.suppressed = p.suppressed, 0
	} else {
		p.suppressed++
	}
	p.mu.Unlock()
	if ok {
		p.Denied(d)
	}
}

// Counts are what passed by one rule, or was refused by it.
type Counts struct {
	Rule        string
	Connections uint64 // and UDP flows
	BytesUp     uint64 // from the sandbox
	BytesDown   uint64
	Failures    uint64 // connections that could not be made
	Denials     uint64
}

type counter struct{ connections, up, down, failures, denials atomic.Uint64 }

// counters are kept by rule. Rules are a policy's entries and some of ours: what a
// sandbox does makes no new ones.
type counters struct{ byRule sync.Map } // string -> *counter

func (c *counters) of(rule string) *counter {
	if n, ok := c.byRule.Load(rule); ok {
		return n.(*counter)
	}
	n, _ := c.byRule.LoadOrStore(rule, new(counter))
	return n.(*counter)
}

// Counts are the proxy's counters, ordered by rule.
func (p *Proxy) Counts() []Counts {
	var all []Counts
	p.counts.byRule.Range(func(rule, n any) bool {
		c := n.(*counter)
		all = append(all, Counts{
			Rule: rule.(string), Connections: c.connections.Load(), BytesUp: c.up.Load(), BytesDown: c.down.Load(),
			Failures: c.failures.Load(), Denials: c.denials.Load(),
		})
		return true
	})
	slices.SortFunc(all, func(a, b Counts) int { return strings.Compare(a.Rule, b.Rule) })
	return all
}

// Connections is how many connections there are now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.flows)
}

// Light is how many of them the loop carries, of which the others take goroutines.
func (p *Proxy) Light() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.flows {
		f.mu.Lock()
		if f.light != nil && !f.over {
			n++
		}
		f.mu.Unlock()
	}
	return n
}
