package api

import (
	"fmt"
	"net/netip"
	"slices"
)

// NetMode is the network policy's mode.
type NetMode string

// The network modes.
const (
	// NetNone is the default: a loopback interface and nothing else, no DNS either.
	NetNone NetMode = "none"
	// NetAllow reaches what the policy allows and nothing else.
	NetAllow NetMode = "allow"
	// NetOpen reaches all of the public internet except what the policy blocks.
	NetOpen NetMode = "open"
	// NetLearn records what a sandbox wants to reach: see NetLearning.
	NetLearn NetMode = "learn"
)

// NetModes are all modes.
var NetModes = []NetMode{NetNone, NetAllow, NetOpen, NetLearn}

// NetTier is another word for a mode, as some products have it.
type NetTier string

// The tiers. None brings names of its own: there is no hidden list.
const (
	TierRestricted NetTier = "restricted" // NetNone
	TierStandard   NetTier = "standard"   // NetAllow
	TierElevated   NetTier = "elevated"   // NetOpen
)

var tierModes = map[NetTier]NetMode{TierRestricted: NetNone, TierStandard: NetAllow, TierElevated: NetOpen}

// NetLearning says what mode learn does with what the policy does not allow.
type NetLearning string

// The ways to learn. Both record every name and port, for network.get to make the
// smallest policy of that would have been enough.
const (
	LearnDeny  NetLearning = "deny"  // refuse it, as mode allow does; the default
	LearnAllow NetLearning = "allow" // let it pass, as mode open does
)

// NetPolicy says what a sandbox may reach. The zero policy is mode none.
//
// Names are matched label by label, whatever address they have; see ParseNetPattern for
// the patterns of Allow and Block. Block wins over Allow, and BlockCIDRs over all else.
// A name that is allowed and has an address that is not public (private, link-local,
// a cloud's metadata, the host's own, ...) is refused unless AllowCIDRs names that range.
type NetPolicy struct {
	Mode       NetMode  `json:"mode,omitempty"`
	Tier       NetTier  `json:"tier,omitempty"`        // instead of Mode
	Allow      []string `json:"allow,omitempty"`       // names, patterns such as *.example.com, each with a port if it is another than 80 and 443
	Block      []string `json:"block,omitempty"`       // names that are refused whatever Allow says
	AllowCIDRs []string `json:"allow_cidrs,omitempty"` // TCP to these addresses, also without a name
	BlockCIDRs []string `json:"block_cidrs,omitempty"` // addresses that are refused whatever else is allowed
	// Learn belongs to mode learn.
	Learn NetLearning `json:"learn,omitempty"`
	// Ask belongs to mode allow: a connection over TCP that no entry allows, and none blocks, is held while somebody is
	// asked (network.ask, network.answer), for AskS seconds (default DefaultAskS, at most MaxAskS). Without an answer
	// it is refused.
	Ask  bool    `json:"ask,omitempty"`
	AskS float64 `json:"ask_s,omitempty"`
	// Require names enforcement without which creation fails: "ebpf", by the kernel itself.
	Require []NetRequire `json:"require,omitempty"`
}

// NetRequire names an enforcement that must be in force.
type NetRequire string

// RequireEBPF is enforcement by eBPF programs at the sandbox's cgroup.
const RequireEBPF NetRequire = "ebpf"

// How long somebody is waited for who is asked, in seconds. Programs give up on connections by themselves, most after
// one or two minutes.
const (
	DefaultAskS = 60
	MaxAskS     = 600
)

// MaxNetRules is how many entries the lists of a policy may have together. Lookups do
// not grow with them; requests and records do.
const MaxNetRules = 50_000

// Effective is the mode in force: Mode, or what Tier stands for; without either NetAllow where something is allowed,
// else NetNone.
func (p *NetPolicy) Effective() NetMode {
	switch {
	case p.Tier != "":
		return tierModes[p.Tier]
	case p.Mode != "":
		return p.Mode
	case len(p.Allow)+len(p.AllowCIDRs) > 0, p.Ask:
		return NetAllow // as the flags of the command line have it
	}
	return NetNone
}

// IsZero says that p asks for nothing: the configuration's policy holds then.
func (p NetPolicy) IsZero() bool {
	return p.Mode == "" && p.Tier == "" && len(p.Allow)+len(p.Block)+len(p.AllowCIDRs)+len(p.BlockCIDRs) == 0 &&
		p.Learn == "" && !p.Ask && p.AskS == 0 && len(p.Require) == 0
}

// Validate refuses a policy that says nothing, contradicts itself or allows more than
// anybody means; field is its place in the request.
func (p *NetPolicy) Validate(field string) error {
	if err := p.validateMode(field); err != nil {
		return err
	}
	if n := len(p.Allow) + len(p.Block) + len(p.AllowCIDRs) + len(p.BlockCIDRs); n > MaxNetRules {
		return invalid(field, "%d entries are too many", n).
			WithHint("use at most %d; a pattern such as *.example.com stands for many names", MaxNetRules)
	}
	for i, s := range p.Allow {
		pattern, problem := parsePattern(s)
		if problem == nil {
			problem = pattern.tooBroad()
		}
		if problem != nil {
			return problem.at(fmt.Sprintf("%s.allow[%d]", field, i), s)
		}
	}
	for i, s := range p.Block {
		if _, problem := parsePattern(s); problem != nil {
			return problem.at(fmt.Sprintf("%s.block[%d]", field, i), s)
		}
	}
	for i, s := range p.AllowCIDRs {
		if _, problem := parseCIDR(s); problem != nil {
			return problem.at(fmt.Sprintf("%s.allow_cidrs[%d]", field, i), s)
		}
	}
	for i, s := range p.BlockCIDRs {
		if _, problem := parseCIDR(s); problem != nil {
			return problem.at(fmt.Sprintf("%s.block_cidrs[%d]", field, i), s)
		}
	}
	return nil
}

func (p *NetPolicy) validateMode(field string) error {
	if p.Tier != "" {
		if _, ok := tierModes[p.Tier]; !ok {
			return invalid(field+".tier", "%q is no tier", p.Tier).WithHint("use restricted, standard or elevated")
		}
		if p.Mode != "" {
			return invalid(field+".tier", "%s given together with mode %q", p.Tier, p.Mode).
				WithHint("give one of the two: %s is mode %s", p.Tier, tierModes[p.Tier])
		}
	}
	for i, r := range p.Require {
		if r != RequireEBPF {
			return invalid(fmt.Sprintf("%s.require[%d]", field, i), "%q cannot be required", r).
				WithHint("use ebpf, or leave it out")
		}
	}
	mode := p.Effective()
	switch {
	case !slices.Contains(NetModes, mode):
		return invalid(field+".mode", "%q is no mode", p.Mode).WithHint("use none, allow, open or learn")
	case mode == NetNone && len(p.Allow)+len(p.AllowCIDRs) > 0:
		return invalid(field+".mode", "none, but names or addresses are allowed").WithHint("use mode allow")
	case p.Learn != "" && p.Learn != LearnDeny && p.Learn != LearnAllow:
		return invalid(field+".learn", "%q is no way to learn", p.Learn).WithHint("use deny or allow")
	case p.Learn != "" && mode != NetLearn:
		return invalid(field+".learn", "given with mode %s", mode).WithHint("use mode learn, or leave it out")
	case p.Ask && mode != NetAllow:
		return invalid(field+".ask", "given with mode %s", mode).
			WithHint("use mode allow, which may allow nothing at first")
	case p.AskS != 0 && !p.Ask:
		return invalid(field+".ask_s", "given without ask").WithHint("set ask, or leave it out")
	case !(p.AskS >= 0 && p.AskS <= MaxAskS):
		return invalid(field+".ask_s", "%g seconds", p.AskS).WithHint("use 1 to %d", MaxAskS)
	}
	return nil
}

// ParseNetCIDR reads an entry of allow_cidrs or block_cidrs: a range such as 10.0.0.0/8
// or fd00::/8, or one address. IPv4 addresses that are written as IPv6 are IPv4's.
func ParseNetCIDR(s string) (netip.Prefix, error) {
	p, problem := parseCIDR(s)
	if problem != nil {
		return p, problem.at("cidr", s)
	}
	return p, nil
}

func parseCIDR(s string) (netip.Prefix, *problem) {
	const hint = "write a range such as 10.0.0.0/8 or fd00::/8, or one address"
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, &problem{"has a zone, which means nothing outside this host", hint}
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, &problem{"is no range of addresses", hint}
	case p.Addr().Is4In6() && p.Bits() < 96:
		return p, &problem{"covers IPv4 written as IPv6 and more", hint}
	case p.Addr().Is4In6():
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); m != p {
		// 10.0.0.5/8 is a mistake more often than a range.
		return p, &problem{"has bits set behind its prefix",
			fmt.Sprintf("write %s for the range, or %s for the address", m, p.Addr())}
	}
	return p, nil
}
