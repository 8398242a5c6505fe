package e2b

import (
	"net/http"
	"net/netip"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// network is what a sandbox may reach, and who may reach it.
type network struct {
	AllowOut []string `json:"allowOut"`
	DenyOut  []string `json:"denyOut"`
	// AllowPublic is whether its servers may be reached without its traffic token.
	AllowPublic   *bool          `json:"allowPublicTraffic,omitempty"`
	AllowInternet *bool          `json:"allow_internet_access,omitempty"` // of an update
	Rules         map[string]any `json:"rules,omitempty"`
	EgressProxy   map[string]any `json:"egressProxy,omitempty"`
	MaskHost      string         `json:"maskRequestHost,omitempty"`
}

// everything are the ranges that stand for all addresses.
func everything(entry string) bool { return entry == "0.0.0.0/0" || entry == "::/0" }

func online() *rest.NetworkPolicy { return &rest.NetworkPolicy{Mode: api.NetOpen} }

// offline reaches nothing, and may be allowed to reach something later: which mode none may not.
func offline() *rest.NetworkPolicy { return &rest.NetworkPolicy{Mode: api.NetAllow} }

// policy is what is asked for; nil is nothing, so that it is the template's.
func (n *newSandbox) policy() (*rest.NetworkPolicy, error) {
	if n.AllowInternet != nil && !*n.AllowInternet {
		return offline(), nil
	}
	if n.Network == nil || len(n.Network.AllowOut)+len(n.Network.DenyOut) == 0 {
		if n.AllowInternet != nil {
			return online(), n.Network.refused()
		}
		return nil, n.Network.refused()
	}
	return n.Network.policy()
}

// refused are parts of a policy that are not here: a sandbox without them would send what it should not, or where.
func (n *network) refused() error {
	if n != nil && (len(n.Rules) > 0 || len(n.EgressProxy) > 0 || n.MaskHost != "") {
		return api.Errorf(api.InvalidArgument, "network: rules, egressProxy and maskRequestHost are E2B's alone").
			WithField("network").WithHint("leave them out; docs/e2b.md says what is left out")
	}
	return nil
}

// policy is hutch's for one of E2B's. What allowOut names can be reached, and nothing else: that is the narrower of the
// two ways in which E2B's own words can be read where denyOut does not name the rest. Without allowOut all of the
// internet can be, but for what denyOut names.
func (n *network) policy() (*rest.NetworkPolicy, error) {
	if err := n.refused(); err != nil {
		return nil, err
	}
	if n.AllowInternet != nil && !*n.AllowInternet {
		return offline(), nil
	}
	p, all := online(), len(n.AllowOut) == 0
	for _, entry := range n.DenyOut {
		if everything(entry) {
			all = false
			continue
		}
		p.BlockCIDRs = append(p.BlockCIDRs, entry)
	}
	for _, entry := range n.AllowOut {
		switch {
		case everything(entry):
			all = true
		case isAddress(entry):
			p.AllowCIDRs = append(p.AllowCIDRs, entry)
		default:
			p.Allow = append(p.Allow, entry)
		}
	}
	if !all {
		p.Mode = api.NetAllow
	}
	return p, nil
}

func isAddress(entry string) bool {
	_, err := netip.ParsePrefix(entry)
	_, aerr := netip.ParseAddr(entry)
	return err == nil || aerr == nil
}

// networkOf is a policy in E2B's words.
func networkOf(p *api.NetPolicy) *network {
	n := &network{AllowOut: append(append([]string{}, p.Allow...), p.AllowCIDRs...),
		DenyOut: append([]string{}, p.BlockCIDRs...)}
	if mode := p.Effective(); mode != api.NetOpen {
		n.DenyOut = append(n.DenyOut, "0.0.0.0/0")
	}
	return n
}

func (s control) setNetwork(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var n network
	if err := decode(w, r, &n); err != nil {
		return 0, nil, err
	}
	sb, err := s.found(r)
	if err != nil {
		return 0, nil, err
	}
	p, err := n.policy()
	if err == nil {
		err = s.rest.SetNetwork(r.Context(), sb.ID, p)
	}
	return http.StatusNoContent, nil, err
}
