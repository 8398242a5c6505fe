package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Set is the execs of one sandbox with a network policy of their own. The zero value has none.
type Set struct {
	mu   sync.Mutex // guards what follows
	list []narrow
}

// narrow is such an exec. Its policy holds for whatever is in its cgroup until that is gone: also for what the exec
// leaves behind.
type narrow struct {
	Group   string        `json:"group"`
	Number  uint64        `json:"number"` // of the cgroup: its name may be another's one day
	Network api.NetPolicy `json:"network"`
}

// CheckNarrow refuses a policy for an exec that cannot be honoured.
func (e *Egress) CheckNarrow(s Sandbox, p *api.NetPolicy) error {
	if p.Ask {
		return api.Errorf(api.InvalidArgument,
			"network.ask: a policy of a single exec only takes away, and asks nobody").
			WithField("network.ask").WithHint("leave it out; the sandbox's policy may ask")
	}
	if _, own := s.Cgroup(); !e.cfg.EBPF || !own {
		why := e.cfg.Reason
		if why == "" {
			why = "execs have no cgroups"
		}
		return api.Errorf(api.Unavailable, "network: a policy of a single exec takes eBPF, which is off here: %s", why).
			WithField("network").
			WithHint("leave it out, or run the command in a sandbox of its own; hutch doctor says how to get eBPF")
	}
	return e.cfg.Networks.CheckNarrower(s.Record().Network.NetPolicy, *p)
}

// Narrow puts the policy of an exec in force, and on record, before there is any process of it. Its cgroup is used
// once.
func (e *Egress) Narrow(s Sandbox, exec, group string, p *api.NetPolicy) error {
	path, _ := s.Cgroup()
	number := e.cfg.Cgroups.Number(path, group)
	if number == 0 {
		return api.Errorf(api.Unavailable, "the cgroup of exec %s is gone", exec).WithHint("the sandbox is ending")
	}
	set := s.Narrowed()
	set.mu.Lock()
	defer set.mu.Unlock()
	var living []narrow
	for _, n := range set.list {
		if e.cfg.Cgroups.Number(path, n.Group) == n.Number {
			living = append(living, n)
		} else if err := s.Enforced().Widen(n.Number); err != nil {
			return err
		}
	}
	set.list = append(living, narrow{Group: group, Number: number, Network: p.Settled()})
	if err := e.cfg.Write(narrowFile(s), set.list); err != nil {
		return err
	}
	if err := s.Enforced().Narrow(number, p.Settled()); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

func narrowFile(s Sandbox) string { return filepath.Join(s.Dir(), "narrow.json") }

// Adopt puts the policies of execs in force again, for a hutchd that takes over. Until the networks are all adopted,
// the kernel goes by what the hutchd before has put there.
func (e *Egress) Adopt(s Sandbox) error {
	data, err := os.ReadFile(narrowFile(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []narrow
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return fmt.Errorf("read the network policies of execs: %w", err)
	}
	path, _ := s.Cgroup()
	set := s.Narrowed()
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, n := range list {
		if e.cfg.Cgroups.Number(path, n.Group) != n.Number {
			continue
		}
		if err := s.Enforced().Narrow(n.Number, n.Network); err != nil {
			return err
		}
		set.list = append(set.list, n)
	}
	return nil
}
