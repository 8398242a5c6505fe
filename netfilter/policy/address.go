package policy

import (
	"net/netip"
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
)

// special are the ranges that are not the public internet, after IANA's special-purpose
// registries and the clouds' manuals. The longest prefix that holds an address decides.
// What a policy does not name is refused, whatever name leads there.
var special = func() []specialRange {
	s := []specialRange{
		{cidr("0.0.0.0/8"), "this host", "stands for the host itself (RFC 1122)"},
		{cidr("10.0.0.0/8"), "private address", "is private (RFC 1918)"},
		{cidr("100.64.0.0/10"), "shared address", "is carrier-grade NAT's, and VPNs' (RFC 6598)"},
		{cidr("127.0.0.0/8"), "loopback address", "is the host's loopback"},
		{cidr("169.254.0.0/16"), "link-local address", "is link-local, where clouds keep their metadata (RFC 3927)"},
		{cidr("172.16.0.0/12"), "private address", "is private (RFC 1918)"},
		{cidr("192.0.0.0/24"), "reserved address", "is for protocols (RFC 6890)"},
		{cidr("192.0.0.9/32"), "", ""},  // PCP anycast, globally reachable
		{cidr("192.0.0.10/32"), "", ""}, // TURN anycast, globally reachable
		{cidr("192.0.2.0/24"), "reserved address", "is for documentation (RFC 5737)"},
		{cidr("192.88.99.0/24"), "reserved address", "was the 6to4 relays' (RFC 7526)"},
		{cidr("192.168.0.0/16"), "private address", "is private (RFC 1918)"},
		{cidr("198.18.0.0/15"), "reserved address", "is for benchmarks (RFC 2544), and where sandboxes see names"},
		{cidr("198.51.100.0/24"), "reserved address", "is for documentation (RFC 5737)"},
		{cidr("203.0.113.0/24"), "reserved address", "is for documentation (RFC 5737)"},
		{cidr("224.0.0.0/4"), "multicast address", "is multicast"},
		{cidr("240.0.0.0/4"), "reserved address", "is reserved, or broadcast (RFC 1112, RFC 919)"},

		// Only 2000::/3 is assigned to the public internet.
		{cidr("::/3"), "reserved address", "is reserved (RFC 4291)"},
		{cidr("::/128"), "this host", "stands for the host itself (RFC 4291)"},
		{cidr("::1/128"), "loopback address", "is the host's loopback"},
		{cidr("64:ff9b:1::/48"), "NAT64 address", "is a local NAT64's, behind which any address may be (RFC 8215)"},
		{cidr("2001::/23"), "reserved address", "is for protocols (RFC 2928)"},
		{cidr("2001::/32"), "Teredo address", "is a Teredo tunnel's, behind which any address may be (RFC 4380)"},
		{cidr("2001:db8::/32"), "reserved address", "is for documentation (RFC 3849)"},
		{cidr("3fff::/20"), "reserved address", "is for documentation (RFC 9637)"},
		{cidr("4000::/2"), "reserved address", "is reserved (RFC 4291)"},
		{cidr("8000::/1"), "reserved address", "is reserved (RFC 4291)"},
		{cidr("fc00::/7"), "private address", "is private (RFC 4193)"},
		{cidr("fe80::/10"), "link-local address", "is link-local (RFC 4291)"},
		{cidr("fec0::/10"), "private address", "is site-local (RFC 3879)"},
		{cidr("ff00::/8"), "multicast address", "is multicast"},

		// Where clouds tell a machine who it is and hand it credentials. Each must be
		// named by itself: who allows a private network does not mean these.
		{cidr("100.100.100.200/32"), "metadata address", "is Alibaba Cloud's metadata service"},
		{cidr("168.63.129.16/32"), "metadata address", "is Azure's host agent"},
		{cidr("169.254.169.253/32"), "metadata address", "is AWS' resolver"},
		{cidr("169.254.169.254/32"), "metadata address", "is the clouds' metadata service"},
		{cidr("169.254.170.2/32"), "metadata address", "is AWS ECS' credentials service"},
		{cidr("169.254.170.23/32"), "metadata address", "is AWS EKS' credentials service"},
		{cidr("192.0.0.192/32"), "metadata address", "is Oracle Cloud's metadata service"},
		{cidr("fd00:ec2::23/128"), "metadata address", "is AWS EKS' credentials service"},
		{cidr("fd00:ec2::253/128"), "metadata address", "is AWS' resolver"},
		{cidr("fd00:ec2::254/128"), "metadata address", "is AWS' metadata service"},
		{cidr("fd20:ce::254/128"), "metadata address", "is Google Cloud's metadata service"},
		{cidr("fd00:42::42/128"), "metadata address", "is Scaleway's metadata service"},
	}
	slices.SortStableFunc(s, func(a, b specialRange) int { return b.Bits() - a.Bits() })
	return s
}()

var cidr = netip.MustParsePrefix

type specialRange struct {
	netip.Prefix
	rule string // as Decision.Rule; "" for public addresses in a range that is not
	why  string // after the address
}

// Prefixes of IPv6 that carry an IPv4 address. What is refused as IPv4 is refused in
// them: the other end of the translator goes there.
var (
	nat64     = cidr("64:ff9b::/96") // RFC 6052: the last 32 bits
	sixToFour = cidr("2002::/16")    // RFC 3056: bits 16 to 47
)

// embedded is the IPv4 address that a translator would go to.
func embedded(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case a.Is4():
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// address refuses what no connection may go to: blocked ranges, and special ones that
// the policy does not name.
func (r *Rules) address(a netip.Addr) (_ Decision, refused bool) {
	if text, _ := r.blockCIDRs.find(a); text != "" {
		return Decision{Rule: "block_cidrs " + text, Why: "the policy blocks " + a.String(),
			HowToAllow: "leave out --block-cidr " + text}, true
	}
	if inner, ok := embedded(a); ok {
		if d, refused := r.address(inner); refused {
			d.Why = a.String() + " leads to " + inner.String() + ": " + d.Why
			return d, true
		}
		return Decision{}, false
	}
	for _, s := range special {
		if !s.Contains(a) {
			continue
		}
		// A range that is wider than the special one does not name it: 0.0.0.0/0 means
		// the internet and not the metadata service.
		if _, bits := r.allowCIDRs.find(a); s.rule == "" || bits >= s.Bits() {
			return Decision{}, false
		}
		return Decision{Rule: s.rule, Why: a.String() + " " + s.why, HowToAllow: "--allow-cidr " + a.String()}, true
	}
	return Decision{}, false
}

// prefixes are ranges of a policy. A lookup takes as many steps as there are different
// lengths, however many ranges.
type prefixes struct {
	at   map[netip.Prefix]string // as written
	bits [2][]int                // lengths in use, longest first, of IPv4 and IPv6
}

func newPrefixes(list []string) (prefixes, error) {
	ps := prefixes{at: map[netip.Prefix]string{}}
	for _, s := range list {
		p, err := api.ParseNetCIDR(s)
		if err != nil {
			return ps, err
		}
		family := familyOf(p.Addr())
		ps.at[p] = s
		ps.bits[family] = append(ps.bits[family], p.Bits())
	}
	for i := range ps.bits {
		slices.SortFunc(ps.bits[i], func(a, b int) int { return b - a })
		ps.bits[i] = slices.Compact(ps.bits[i])
	}
	return ps, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// find is the narrowest range that holds a, as written, and its length; -1 without one.
func (ps *prefixes) find(a netip.Addr) (text string, bits int) {
	for _, bits := range ps.bits[familyOf(a)] {
		if p, err := a.Prefix(bits); err == nil {
			if text, ok := ps.at[p]; ok {
				return text, bits
			}
		}
	}
	return "", -1
}
