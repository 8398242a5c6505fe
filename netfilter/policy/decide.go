package policy

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Name says whether a name may be known to the sandbox at all, for some port. In mode
// learn, and where somebody is asked, every name is, so that the connection shows the port that is wanted: a lookup
// alone asks nobody outside.
func (r *Rules) Name(name string) Decision {
	name, refusal := r.enter(name)
	if refusal != nil {
		return *refusal
	}
	if b := r.blocked(name, "", 0); b != nil {
		return block(b, name)
	}
	for t := range r.tables(name) {
		if t.first != nil {
			return Decision{Allow: true, Rule: t.first.text, Why: "the policy allows " + name}
		}
	}
	if name == api.HostName && r.mode != api.NetLearn {
		return Decision{Rule: hostService, Why: "no entry of allow names a port of this host",
			HowToAllow: "--allow host:PORT"}
	}
	switch {
	case r.mode == api.NetNone:
		return Decision{Rule: "mode none", Why: noNetwork, HowToAllow: "--allow " + name}
	case r.any():
		return Decision{Allow: true, Rule: "mode " + string(r.mode), Why: "nothing blocks " + name}
	}
	return Decision{Rule: "mode allow", Why: "no entry of allow matches " + name, HowToAllow: "--allow " + name}
}

// Connect decides about a connection to the address that stands for name.
func (r *Rules) Connect(name string, proto Proto, port uint16) Decision {
	name, refusal := r.enter(name)
	if refusal != nil {
		return *refusal
	}
	if b := r.blocked(name, proto, port); b != nil {
		return block(b, name)
	}
	if name == api.HostName {
		return r.host(proto, port)
	}
	if r.mode == api.NetNone {
		return Decision{Rule: "mode none", Why: noNetwork, HowToAllow: howToAllow(name, proto, port)}
	}
	known := false
	for t := range r.tables(name) {
		if a := t.allow[endpoint{proto, port}]; a != nil && !r.open {
			return Decision{Allow: true, Rule: a.text, Why: "the policy allows it", Check: a.check}
		} else if a != nil {
			return r.passes(a.text, proto)
		}
		known = known || t.first != nil
	}
	switch {
	case r.open && proto == TCP:
		return r.passes("mode "+string(r.mode), proto)
	case r.open:
		return Decision{Rule: "mode " + string(r.mode), HowToAllow: howToAllow(name, proto, port),
			Why: "mode " + string(r.mode) + " is for TCP: " + target(name, port) +
				" over UDP needs an entry udp:// in allow"}
	case known:
		return Decision{Rule: "mode " + string(r.mode), HowToAllow: howToAllow(name, proto, port), Asks: r.asks &&
			proto == TCP,
			Why: "allow has " + name + ", but not " + strings.ToUpper(string(proto)) + " port " +
				strconv.Itoa(int(port))}
	}
	return Decision{Rule: "mode " + string(r.mode), HowToAllow: howToAllow(name, proto, port),
		Why: "no entry of allow matches " + name, Asks: r.asks && proto == TCP}
}

// Granted is the decision about a TCP connection that somebody was asked about and has allowed, once, where d asks. The
// stream must show what the entry that d names would make it show.
func (r *Rules) Granted(d Decision, name string, port uint16) Decision {
	d.Allow, d.Asks, d.Rule, d.Why = true, false, Asked, "it was asked about and allowed, once"
	if name == "" {
		return d
	}
	switch port {
	case 80, 443, 8080, 8443: // as howToAllow has it
		d.Check = checkOf(port)
	}
	return d
}

// Asked is the rule of what was allowed once.
const Asked = "asked"

// hostService is the rule that no service of the host is reached but those that entries name, in any mode.
const hostService = "host service"

// host decides about a port of the host's loopback.
func (r *Rules) host(proto Proto, port uint16) Decision {
	if z := r.names[api.HostName]; z != nil {
		if a := z.self.allow[endpoint{proto, port}]; a != nil {
			return Decision{Allow: true, Rule: a.text, Why: "the policy allows this service of the host"}
		}
	}
	d := Decision{Rule: hostService, Why: "no entry of allow names " + strings.ToUpper(string(proto)) + " port " +
		strconv.Itoa(int(port)) + " of this host"}
	if proto == TCP && port != 0 {
		d.HowToAllow = "--allow " + target(api.HostName, port)
	}
	return d
}

// HostAddresses are where services of the host are looked for, in order. nil: name is another's.
func HostAddresses(name string) []netip.Addr {
	if name != api.HostName && name != api.HostAlias {
		return nil
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// Host decides about the name in a stream whose check is CheckBlock: is it blocked?
func (r *Rules) Host(host string, proto Proto, port uint16) Decision {
	name, refusal := r.enter(host)
	if refusal != nil {
		return *refusal
	}
	if b := r.blocked(name, proto, port); b != nil {
		return block(b, name)
	}
	if r.mode == api.NetNone {
		return Decision{Rule: "mode none", Why: noNetwork, HowToAllow: "--allow " + name}
	}
	return Decision{Allow: true, Rule: "mode " + string(r.mode), Why: "nothing blocks " + name}
}

// Literal decides about a connection to an address that no name led to. It knows
// nothing of the host's own addresses: Dial does.
func (r *Rules) Literal(a netip.Addr, proto Proto, port uint16) Decision {
	if r.mode == api.NetNone {
		d := Decision{Rule: "mode none", Why: noNetwork}
		if proto == TCP { // datagrams go to names only
			d.HowToAllow = "--allow-cidr " + a.Unmap().WithZone("").String()
		}
		return d
	}
	a = a.Unmap().WithZone("")
	if b := r.all.blocked(proto, port); b != nil {
		return block(b, a.String())
	}
	if d, refused := r.address(a); refused {
		return d
	}
	if proto != TCP {
		return Decision{Rule: "UDP", Why: "datagrams go to names only, by entries udp:// in allow"}
	}
	if text, _ := r.allowCIDRs.find(a); text != "" {
		return Decision{Allow: true, Rule: "allow_cidrs " + text, Why: "the policy allows it"}
	}
	if r.open {
		return r.passes("mode "+string(r.mode), proto)
	}
	return Decision{
		Rule: "mode " + string(r.mode), Why: "no range of allow_cidrs holds " + a.String() + ", and no lookup gave it",
		HowToAllow: "--allow-cidr " + a.String(), Asks: r.asks,
	}
}

// Dial decides about the address that hutchd is about to connect to, at the last moment:
// name resolved to it, or it is the literal when name is empty. own says that an address
// is one of the host's interfaces'.
func (r *Rules) Dial(name string, a netip.Addr, port uint16, own func(netip.Addr) bool) Decision {
	a = a.Unmap().WithZone("")
	if HostAddresses(name) != nil {
		return r.dialHost(a, port)
	}
	d, refused := r.address(a)
	// Services of the host that listen on all of its addresses are not meant by who
	// allows the network that the host is in: its address must be named by itself.
	if _, bits := r.allowCIDRs.find(a); !refused && !a.IsLoopback() && bits < a.BitLen() && own(a) {
		d, refused = Decision{Rule: "host's own address", Why: a.String() + " is this host",
			HowToAllow: "--allow-cidr " + a.String()}, true
	}
	if !refused {
		if text, _ := r.allowCIDRs.find(a); text != "" {
			return Decision{Allow: true, Rule: "allow_cidrs " + text, Why: "the policy allows " + a.String()}
		}
		return Decision{Allow: true, Rule: "public address", Why: a.String() + " is of the public internet"}
	}
	if name != "" {
		d.Why = name + " has the address " + a.String() + ": " + d.Why
	}
	return d
}

// dialHost is Dial for a service of the host: on the two addresses that are meant, unless they are blocked.
func (r *Rules) dialHost(a netip.Addr, port uint16) Decision {
	if text, _ := r.blockCIDRs.find(a); text != "" {
		return Decision{Rule: "block_cidrs " + text, Why: "the policy blocks " + a.String(),
			HowToAllow: "leave out --block-cidr " + text}
	}
	if !slices.Contains(HostAddresses(api.HostName), a) {
		return Decision{Rule: hostService, Why: a.String() + " is not this host's loopback"}
	}
	return r.host(TCP, port)
}

// passes is the decision of mode open.
func (r *Rules) passes(rule string, proto Proto) Decision {
	d := Decision{Allow: true, Rule: rule, Why: "nothing blocks it"}
	if r.blocks && proto == TCP {
		d.Check = CheckBlock
	}
	return d
}

// enter reads a name that came from the sandbox.
func (r *Rules) enter(s string) (string, *Decision) {
	name, err := api.NetName(s)
	if err != nil {
		return "", &Decision{Rule: "not a name", Why: strings.TrimPrefix(err.Error(), "name: ")}
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return "", &Decision{Rule: "not a name", Why: name + " is the sandbox itself (RFC 6761)"}
	}
	if name == api.HostAlias {
		name = api.HostName
	}
	return name, nil
}

// tables are those that hold rules of name: for every name, for itself, and for all
// that is below each of its parents. There are as many lookups as labels.
func (r *Rules) tables(name string) iter.Seq[*table] {
	return func(yield func(*table) bool) {
		if !yield(&r.all) {
			return
		}
		if z := r.names[name]; z != nil && !yield(&z.self) {
			return
		}
		for _, parent, more := strings.Cut(name, "."); more; _, parent, more = strings.Cut(parent, ".") {
			if z := r.names[parent]; z != nil && !yield(&z.below) {
				return
			}
		}
	}
}

// blocked is the entry of block that holds for name: with port 0, on every port.
func (r *Rules) blocked(name string, proto Proto, port uint16) *rule {
	if !r.blocks {
		return nil
	}
	for t := range r.tables(name) {
		if b := t.blocked(proto, port); b != nil {
			return b
		}
	}
	return nil
}

// Alias refuses a connection to a name that is another name (CNAME) of one that is blocked. What has an address in
// common with that, or is reached by way of something else, no policy of names can tell.
func (r *Rules) Alias(name, alias string, proto Proto, port uint16) (_ Decision, blocked bool) {
	b := r.blocked(alias, proto, port)
	if b == nil {
		return Decision{}, false
	}
	d := block(b, alias)
	d.Why += ", which " + name + " is another name of"
	return d, true
}

func (t *table) blocked(proto Proto, port uint16) *rule {
	if len(t.block) == 0 {
		return nil
	}
	for _, at := range [...]endpoint{{}, {"", port}, {proto, port}} {
		if b := t.block[at]; b != nil {
			return b
		}
	}
	return nil
}

func block(b *rule, what string) Decision {
	return Decision{Rule: b.text, Why: "the policy blocks " + what, HowToAllow: "leave out --" + b.text}
}

// noNetwork is why anything is refused in mode none.
const noNetwork = "the sandbox has no network"

// howToAllow is the flag for a name. Ports that are no HTTP servers' get tcp://: other
// protocols than TLS and HTTP name no host that could be checked.
func howToAllow(name string, proto Proto, port uint16) string {
	switch {
	case port == 0:
		return "" // no service is there
	case proto == UDP:
		return "--allow udp://" + target(name, port)
	case port == 80 || port == 443:
		return "--allow " + name
	case port == 8080 || port == 8443:
		return "--allow " + target(name, port)
	}
	return "--allow tcp://" + target(name, port)
}

func target(name string, port uint16) string { return name + ":" + strconv.Itoa(int(port)) }
