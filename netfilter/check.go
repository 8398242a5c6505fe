package netfilter

import (
	"net"
	"net/netip"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Check says what a policy does with a target: network.check.
func Check(p api.NetPolicy, t api.NetTarget) (api.NetVerdict, error) {
	rules, err := policy.Compile(p)
	if err != nil {
		return api.NetVerdict{}, err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return api.NetVerdict{}, api.Errorf(api.Internal, "list this host's addresses: %w", err).
			WithHint("this is a fault of the host: try again")
	}
	return rules.Verdict(t, func(a netip.Addr) bool {
		for _, o := range own {
			if n, ok := o.(*net.IPNet); ok && n.IP.Equal(net.IP(a.AsSlice())) {
				return true
			}
		}
		return false
	}), nil
}

// Check says whether a policy can be put in force, but for what the kernel says to it.
func (e *Engine) Check(p api.NetPolicy) error {
	_, err := e.compiled.of(p)
	return err
}

// Learn is the smallest policy for what a sandbox has reached, or wanted to reach, under
// the policy p.
func Learn(p api.NetPolicy, wanted []api.NetTarget) api.NetPolicy { return policy.Learn(p, wanted) }
