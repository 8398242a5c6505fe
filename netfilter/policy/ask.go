package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Verdict answers network.check by asking the questions that a connection to t would
// lead to. t is valid: NetCheckParams.Validate has seen it.
func (r *Rules) Verdict(t api.NetTarget, own func(netip.Addr) bool) api.NetVerdict {
	proto := cmp.Or(t.Proto, TCP)
	step, d := "lookup", Decision{}
	address, _ := netip.ParseAddr(t.Address)
	if t.Name != "" {
		if d = r.Name(t.Name); d.Allow && t.Port != 0 {
			step, d = "connect", r.Connect(t.Name, proto, t.Port)
		}
	} else {
		step, d = "connect", r.Literal(address, proto, t.Port)
	}
	check := ""
	if step == "connect" && d.Allow {
		check = d.Check.String()
	}
	if d.Allow && address.IsValid() {
		// The answer that explains more: why it may be dialled is of no interest.
		if dial := r.Dial(t.Name, address, t.Port, own); !dial.Allow {
			step, d, check = "dial", dial, ""
		}
	}
	return api.NetVerdict{Allow: d.Allow, Step: step, Rule: d.Rule, Why: d.Why, HowToAllow: d.HowToAllow, Check: check,
		Ask: d.Asks}
}

// Learn is the smallest policy of mode allow for what a sandbox has reached, or wanted to
// reach, under the policy p. Of p stays what names addresses: where the names that were
// reached have led is not known. Blocks stay, and what they hold for is not learned.
func Learn(p api.NetPolicy, wanted []api.NetTarget) api.NetPolicy {
	learned := api.NetPolicy{Mode: api.NetAllow, Allow: []string{}, Block: p.Block,
		AllowCIDRs: slices.Clone(p.AllowCIDRs), BlockCIDRs: p.BlockCIDRs}
	r, err := Compile(p)
	if err != nil {
		return learned // a policy that is in force compiles
	}
	web := map[string]uint8{} // bit 0 is port 80, bit 1 port 443
	for _, t := range wanted {
		address, err := netip.ParseAddr(t.Address)
		if err == nil && HostAddresses(t.Name) == nil {
			if text, _ := r.blockCIDRs.find(address.Unmap().WithZone("")); text != "" {
				continue
			}
			if entry := r.needs(t.Name, address); entry != "" {
				learned.AllowCIDRs = append(learned.AllowCIDRs, entry)
			}
		}
		name, err := api.NetName(t.Name)
		if err != nil || t.Port == 0 || r.blocked(name, t.Proto, t.Port) != nil {
			continue
		}
		switch {
		case HostAddresses(name) != nil:
			learned.Allow = append(learned.Allow, target(api.HostName, t.Port))
		case t.Proto == TCP && t.Port == 80:
			web[name] |= 1
		case t.Proto == TCP && t.Port == 443:
			web[name] |= 2
		default:
			learned.Allow = append(learned.Allow, strings.TrimPrefix(howToAllow(name, t.Proto, t.Port), "--allow "))
		}
	}
	for name, ports := range web {
		learned.Allow = append(learned.Allow, name+[...]string{"", ":80", ":443", ""}[ports])
	}
	slices.Sort(learned.Allow)
	learned.Allow = slices.Compact(learned.Allow)
	slices.Sort(learned.AllowCIDRs)
	learned.AllowCIDRs = slices.Compact(learned.AllowCIDRs)
	return learned
}

// needs is the entry of allow_cidrs that the address, of a name or without one, must have;
// "" when it needs none, or has it.
func (r *Rules) needs(name string, a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if inner, ok := embedded(a); ok {
		a = inner
	}
	_, special := r.address(a)
	text, _ := r.allowCIDRs.find(a)
	if special || name == "" && text == "" {
		return a.String()
	}
	return ""
}
