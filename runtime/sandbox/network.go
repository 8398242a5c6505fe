package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// Network is what a sandbox may reach and was refused. Wanted is what a policy learns from.
func (m *Manager) Network(ref string) (_ api.Network, wanted []api.NetTarget, _ error) {
	s, err := m.find(ref)
	if err != nil {
		return api.Network{}, nil, err
	}
	return s.network(), s.seen.Wanted(), nil
}

// adoptPlain has the lookups of a sandbox in mode none refused and told again. Without, they fail as they would have:
// who runs the sandbox hears less of it.
func (m *Manager) adoptPlain(id string, pid int) Namespace {
	ns, err := os.Open(m.cfg.Kernel.Proc(pid) + "/ns/net")
	if err == nil {
		var n Namespace
		if n, err = m.cfg.Networks.AdoptPlain(id, ns); err == nil {
			return n
		}
	}
	m.cfg.Logger.Warn("lookups of a sandbox without a network are not told", "sandbox", id, "err", err)
	return nil
}

func (s *Sandbox) network() api.Network {
	rec := s.Record()
	n := api.Network{Sandbox: s.id, Network: rec.Network.NetPolicy, Enforcement: rec.Network.Enforcement}
	if s.net != nil {
		n.Rules = s.seen.Count(s.net.Uses())
		slices.SortFunc(n.Rules, func(a, b api.NetUse) int { return strings.Compare(a.Rule, b.Rule) })
	}
	all, untold := s.seen.Read()
	n.Denials, n.Failures = exec.Part(all)
	n.Untold = untold
	return n
}

// UpdateNetwork puts another policy in force, or changes of the one that is.
func (m *Manager) UpdateNetwork(ctx context.Context, p api.NetUpdateParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s, _, err := m.alive(p.Sandbox)
	if err != nil {
		return err
	}
	if s.net == nil && (p.Network == nil || p.Network.Effective() != api.NetNone) {
		return api.Errorf(api.FailedPrecondition,
			"change what sandbox %s may reach: it was created with network mode none, in a namespace that hutchd has no way into, "+
				"and its processes cannot move to another", s.id).WithField("network.mode").
			WithHint("create another one with mode allow (--network allow), which reaches nothing until network.update allows it")
	}
	// One at a time: what one sees is what it leaves.
	s.updates.Lock()
	defer s.updates.Unlock()
	old := s.Record().Network.NetPolicy
	next, err := p.Apply(old)
	if err != nil {
		return err
	}
	if err := m.cfg.Networks.Check(next); err != nil {
		return err
	}
	if s.net == nil {
		return nil // mode none, as it was
	}
	// On record first: what a caller was told is forbidden must be so for the next hutchd,
	// too, which reads it there.
	if err := s.setNetwork(&m.cfg.Host, next); err != nil {
		return errors.Join(api.Errorf(api.Internal, "note the policy of sandbox %s: %w", s.id, err).
			WithHint("the policy is as it was; is the disk full?"), s.setNetwork(&m.cfg.Host, old))
	}
	if err := s.net.Update(next); err != nil {
		return errors.Join(err, s.setNetwork(&m.cfg.Host, old))
	}
	m.tell(s)
	m.audit(ctx, s, "", api.AuditPolicy, next, 0)
	return nil
}

func (s *Sandbox) setNetwork(h *Host, p api.NetPolicy) error {
	s.mu.Lock()
	s.record.Network = api.SandboxNetwork{NetPolicy: p, Enforcement: h.enforcement(p, s.net)}
	s.mu.Unlock()
	return s.save()
}
