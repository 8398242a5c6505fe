package sandbox

import (
	"context"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Network is what a sandbox may reach and was refused. Wanted is what a policy learns from.
func (m *Manager) Network(ref string) (_ api.Network, wanted []api.NetTarget, _ error) {
	s, err := m.find(ref)
	if err != nil {
		return api.Network{}, nil, err
	}
	return s.network(), s.seen.wanted(), nil
}

func (s *Sandbox) network() api.Network {
	rec := s.Record()
	n := api.Network{Sandbox: s.id, Network: rec.Network, Enforcement: rec.Isolation.Enforcement}
	if s.net != nil {
		n.Rules = s.net.Uses()
		slices.SortFunc(n.Rules, func(a, b api.NetUse) int { return strings.Compare(a.Rule, b.Rule) })
	}
	n.Denials, n.Untold = s.seen.read()
	return n
}

// UpdateNetwork puts another policy in force, or changes of the one that is.
func (m *Manager) UpdateNetwork(_ context.Context, p api.NetUpdateParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s, _, err := m.alive(p.Sandbox)
	if err != nil {
		return err
	}
	// One at a time: what one sees is what it leaves.
	s.updates.Lock()
	defer s.updates.Unlock()
	next, err := p.Apply(s.Record().Network)
	if err != nil {
		return err
	}
	switch {
	case s.net != nil:
		if err := s.net.Update(next); err != nil {
			return err
		}
	case next.Mode != api.NetNone:
		return api.Errorf(api.FailedPrecondition, "sandbox %s was created without a network and can not get one", s.id).
			WithField("network.mode").WithHint("create it with mode allow, which may allow nothing at first")
	}
	s.mu.Lock()
	s.record.Network = next
	s.mu.Unlock()
	m.saveEnd(s) // it is in force, whatever becomes of the note
	return nil
}
