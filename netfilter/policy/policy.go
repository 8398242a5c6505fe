// Package policy turns a network policy into decisions. It is pure: no sockets, no
// lookups, no clock.
//
// A connection is decided in up to three steps, each of which can refuse it:
//
//	Name     the sandbox asks for an address: may the name be known at all?
//	Connect  it connects to the address behind that name, or
//	Literal  to an address that no name led to
//	Dial     hutchd connects in its place: is the resolved address one to go to?
package policy

import (
	"fmt"
	"slices"

	"golang.org/x/net/publicsuffix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Proto is a transport protocol.
type Proto = api.NetProto

// The protocols.
const (
	TCP = api.TCP
	UDP = api.UDP
)

// Check says what the proxy must see in the first bytes of a connection.
type Check uint8

// The checks. All but CheckNone and CheckBlock demand that the stream names the very
// name that the address stands for.
const (
	CheckNone   Check = iota // nothing: tcp://, udp://, addresses
	CheckTLS                 // a TLS ClientHello with that server name
	CheckHTTP                // HTTP requests, each with that Host
	CheckEither              // one of the two, as the first bytes show
	// CheckBlock, of mode open: a stream that names a host, by TLS or HTTP, must pass
	// Host as well. Streams that name none pass.
	CheckBlock
)

func (c Check) String() string {
	return [...]string{"none", "tls", "http", "tls or http", "block"}[c]
}

// Decision is what becomes of a lookup or a connection, and why.
type Decision struct {
	Allow bool
	// Rule is an entry of the policy as its author wrote it, after the name of its
	// list (`allow *.example.com:8443`, `block_cidrs 10.0.0.0/8`), its mode (`mode none`)
	// or a rule of ours (`private address`).
	Rule string
	Why  string // one sentence without a full stop
	// HowToAllow is what to add to the policy, as a flag; "" where nothing helps.
	HowToAllow string
	Check      Check // of an allowed connection
	// Asks says that the policy has somebody asked about what it refuses: Rules.Granted is the answer yes.
	Asks bool
}

// Rules are a compiled policy. They never change and may be used by any goroutine.
type Rules struct {
	policy api.NetPolicy
	mode   api.NetMode
	open   bool // what no rule allows passes: mode open, and learn with learn: allow
	asks   bool // about what no rule allows
	names  map[string]*zone
	all    table             // block entries for every name
	blocks bool              // there are block entries
	ports  map[port]struct{} // that some name may be reached on

	allowCIDRs, blockCIDRs prefixes
}

// zone are the rules of one name: for itself, and for all that is below it.
type zone struct{ self, below table }

// table are rules by port. Zero as a port is every port, an empty protocol every one.
type table struct {
	allow, block map[endpoint]*rule
	first        *rule // of allow
}

type endpoint struct {
	proto Proto
	port  uint16
}

// port is one that a name may be reached on, raw if with any stream.
type port struct {
	endpoint
	raw bool
}

type rule struct {
	text  string // as Decision.Rule
	check Check
}

// Compile reads a policy. It refuses what api.NetPolicy.Validate refuses, and wildcards
// right below a public suffix such as co.uk, where everybody can register names.
func Compile(p api.NetPolicy) (*Rules, error) {
	if err := p.Validate("network"); err != nil {
		return nil, err
	}
	r := &Rules{policy: p, mode: p.Effective(), names: make(map[string]*zone, len(p.Allow)+len(p.Block)),
		ports: map[port]struct{}{}}
	r.open = r.mode == api.NetOpen || r.mode == api.NetLearn && p.Learn == api.LearnAllow
	r.asks = r.mode == api.NetAllow && p.Ask
	for i, s := range p.Allow {
		pattern, err := api.ParseNetPattern(s)
		if err != nil {
			return nil, err
		}
		if suffix, icann := publicsuffix.PublicSuffix(pattern.Name); pattern.Below && icann && suffix == pattern.Name {
			field := fmt.Sprintf("network.allow[%d]", i)
			return nil, api.Errorf(api.InvalidArgument, "%s: %q allows every name under %s, which anybody can register",
				field, s, suffix).
				WithField(field).WithHint("name the domains below it, such as *.example.%s", suffix)
		}
		r.allow(pattern, s)
	}
	for _, s := range p.Block {
		pattern, err := api.ParseNetPattern(s)
		if err != nil {
			return nil, err
		}
		t := r.table(pattern)
		if t.block == nil {
			t.block = map[endpoint]*rule{}
		}
		at := endpoint{pattern.Proto, pattern.Port}
		if t.block[at] == nil {
			t.block[at] = &rule{text: "block " + s}
		}
		r.blocks = true
	}
	var err error
	if r.allowCIDRs, err = newPrefixes(p.AllowCIDRs); err != nil {
		return nil, err
	}
	r.blockCIDRs, err = newPrefixes(p.BlockCIDRs)
	return r, err
}

// table is where the rules of a pattern's names are.
func (r *Rules) table(p api.NetPattern) *table {
	if p.Name == "" {
		return &r.all
	}
	z := r.names[p.Name]
	if z == nil {
		z = &zone{}
		r.names[p.Name] = z
	}
	if p.Below {
		return &z.below
	}
	return &z.self
}

func (r *Rules) allow(p api.NetPattern, s string) {
	t := r.table(p)
	if t.allow == nil {
		t.allow = map[endpoint]*rule{}
	}
	text := "allow " + s
	add := func(proto Proto, number uint16, check Check) {
		// Of two entries for the same place the one that asks for less decides: its
		// author wrote tcp:// to have no check.
		at := endpoint{proto, number}
		old := t.allow[at]
		if old == nil || check < old.check {
			old = &rule{text, check}
			t.allow[at] = old
			r.ports[port{at, check == CheckNone}] = struct{}{}
		}
		if t.first == nil {
			t.first = old
		}
	}
	switch {
	case p.Proto != "":
		add(p.Proto, p.Port, CheckNone)
	case p.Port == 0:
		add(TCP, 80, CheckHTTP)
		add(TCP, 443, CheckTLS)
	default:
		add(TCP, p.Port, checkOf(p.Port))
	}
}

func checkOf(port uint16) Check {
	switch port {
	case 80:
		return CheckHTTP
	case 443:
		return CheckTLS
	}
	return CheckEither
}

// Mode is the mode in force.
func (r *Rules) Mode() api.NetMode { return r.mode }

// Policy is what the rules were compiled from. Its lists are not the caller's to change.
func (r *Rules) Policy() api.NetPolicy { return r.policy }

// any says that a connection to whatever port must reach the proxy, which lets it pass, notes it or has somebody asked.
func (r *Rules) any() bool { return r.open || r.asks || r.mode == api.NetLearn }

// Ports are those that any name may be reached on, in order. In mode open, and where somebody is asked, (all true)
// TCP has them all; the ports of UDP are always those that entries name.
func (r *Rules) Ports(proto Proto) (ports []uint16, all bool) {
	if proto == TCP && r.any() {
		return nil, true
	}
	return r.portsOf(func(p port) bool { return p.proto == proto }), false
}

// RawPorts are the TCP ports that some name may be reached on with any stream.
func (r *Rules) RawPorts() []uint16 {
	return r.portsOf(func(p port) bool { return p.proto == TCP && p.raw })
}

func (r *Rules) portsOf(want func(port) bool) []uint16 {
	ports := []uint16{}
	for p := range r.ports {
		if want(p) {
			ports = append(ports, p.port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
