package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/api"
)

// narrowExec is an exec with a network policy of its own, which holds for whatever is in its
// cgroup until that is gone: also for what the exec leaves behind.
type narrowExec struct {
	Group   string        `json:"group"`
	Number  uint64        `json:"number"` // of the cgroup: its name may be another's one day
	Network api.NetPolicy `json:"network"`
}

// checkNarrow refuses a policy for an exec that cannot be honoured.
func (m *Manager) checkNarrow(s *Sandbox, p *api.NetPolicy) error {
	if p.Ask {
		return api.Errorf(api.InvalidArgument,
			"network.ask: a policy of a single exec only takes away, and asks nobody").
			WithField("network.ask").WithHint("leave it out; the sandbox's policy may ask")
	}
	if !m.cfg.Host.EBPF.On || !s.grouped {
		return api.Errorf(api.Unavailable, "network: a policy of a single exec takes eBPF, which is off here: %s",
			orElse(m.cfg.Host.EBPF.Reason, "execs have no cgroups")).
			WithField("network").
			WithHint("leave it out, or run the command in a sandbox of its own; hutch doctor says how to get eBPF")
	}
	return m.cfg.Networks.CheckNarrower(s.Record().Network.NetPolicy, *p)
}

// narrow puts the policy of an exec in force, and on record, before there is any process of it. Its cgroup
// is used once.
func (m *Manager) narrow(s *Sandbox, exec, group string, p *api.NetPolicy) error {
	number := m.cfg.Cgroups.Number(s.cgroup, group)
	if number == 0 {
		return api.Errorf(api.Unavailable, "the cgroup of exec %s is gone", exec).WithHint("the sandbox is ending")
	}
	s.narrowing.Lock()
	defer s.narrowing.Unlock()
	var living []narrowExec
	for _, n := range s.narrowed {
		if m.cfg.Cgroups.Number(s.cgroup, n.Group) == n.Number {
			living = append(living, n)
		} else if err := s.enforced.Widen(n.Number); err != nil {
			return err
		}
	}
	s.narrowed = append(living, narrowExec{Group: group, Number: number, Network: p.Settled()})
	if err := writeJSON(s.narrowFile(), s.narrowed); err != nil {
		return err
	}
	if err := s.enforced.Narrow(number, p.Settled()); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

func (s *Sandbox) narrowFile() string { return filepath.Join(s.dir, "narrow.json") }

// adoptNarrow puts the policies of execs in force again, for a hutchd that takes over. Until the
// networks are all adopted, the kernel goes by what the hutchd before has put there.
func (m *Manager) adoptNarrow(s *Sandbox) error {
	data, err := os.ReadFile(s.narrowFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []narrowExec
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return fmt.Errorf("read the network policies of execs: %w", err)
	}
	for _, n := range list {
		if m.cfg.Cgroups.Number(s.cgroup, n.Group) != n.Number {
			continue
		}
		if err := s.enforced.Narrow(n.Number, n.Network); err != nil {
			return err
		}
		s.narrowed = append(s.narrowed, n)
	}
	return nil
}
