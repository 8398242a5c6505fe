package netfilter

import (
	"fmt"
	"net/netip"

	"github.com/hutch-sh/hutch/netfilter/bpf"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// narrowed is an exec with a policy of its own, which the kernel asks after its sandbox's. The
// proxy knows nothing of it: a socket that an exec is given by another of its sandbox is the other's.
type narrowed struct {
	rules   *policy.Rules
	sandbox *bpf.Sandbox
}

// Narrow puts a policy in force for the processes in the cgroup of one exec, whose number is the
// inode of its folder: they reach what this and the sandbox's policy allow. It is for good: whatever
// is left in the cgroup is under it until the cgroup is gone, which Widen asks for. Doing it again, for a
// daemon before, replaces what that one has put there.
func (s *Enforced) Narrow(cgroup uint64, p api.NetPolicy) error {
	if !s.k.execs {
		return api.Errorf(api.Unavailable,
			"the eBPF programs in force are of an older build, which knows no policies of execs").
			WithHint("restart the daemon when no sandbox runs: hutch rpc system.shutdown '{\"mode\": \"kill\"}'")
	}
	rules, err := s.k.engine.compiled.of(p)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := bpf.Policy{}
	if s.net != nil { // under the lock, or a name that is granted meanwhile would be missing
		in = s.net.forKernel(rules)
	}
	n, err := s.sandbox.Narrow(cgroup, in)
	if err != nil {
		return fmt.Errorf("enforce the network of an exec by eBPF: %w", err)
	}
	if s.narrowed == nil {
		s.narrowed = map[uint64]*narrowed{}
	}
	s.narrowed[cgroup] = &narrowed{rules: rules, sandbox: n}
	return nil
}

// Widen forgets the policy of an exec whose cgroup is gone, of which nobody is left.
func (s *Enforced) Widen(cgroup uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.narrowed[cgroup]
	if n == nil {
		return nil
	}
	delete(s.narrowed, cgroup)
	return n.sandbox.Close()
}

// execRules are those of the exec in a cgroup, nil when it has none of its own.
func (s *Enforced) execRules(cgroup uint64) *policy.Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.narrowed[cgroup]; n != nil {
		return n.rules
	}
	return nil
}

// CheckNarrower refuses an exec's policy that allows what its sandbox's does not, and names the
// entry: it would have no effect.
func (e *Engine) CheckNarrower(sandbox, exec api.NetPolicy) error {
	outer, err := e.compiled.of(sandbox)
	if err != nil {
		return err
	}
	inner, err := e.compiled.of(exec)
	if err != nil {
		return err
	}
	wider := func(field, what string) error {
		return api.Errorf(api.InvalidArgument, "%s: %s is wider than the sandbox's policy", field, what).
			WithField(field).
			WithHint("an exec's policy can only take away; hutch network update changes the sandbox's")
	}
	open := everything(outer)
	switch exec.Effective() {
	case api.NetNone, api.NetAllow:
	case api.NetOpen:
		if !open {
			return wider("network.mode", "open")
		}
	default:
		return api.Errorf(api.InvalidArgument, "network.mode: %s is for sandboxes", exec.Effective()).
			WithField("network.mode").WithHint("use none or allow")
	}
	for i, entry := range exec.Allow {
		pattern, err := api.ParseNetPattern(entry)
		if err != nil {
			return err
		}
		name := pattern.Name
		if pattern.Below { // a name that nobody has an entry for
			name = "hutch-asks-for-any." + name
		}
		if !covers(outer, inner, name) {
			return wider(fmt.Sprintf("network.allow[%d]", i), entry)
		}
	}
	for i, entry := range exec.AllowCIDRs {
		prefix, err := api.ParseNetCIDR(entry)
		if err != nil {
			return err
		}
		if !open && !insideAny(prefix, sandbox.AllowCIDRs) {
			return wider(fmt.Sprintf("network.allow_cidrs[%d]", i), entry)
		}
	}
	return nil
}

// covers says that outer allows a name on every port on which inner does.
func covers(outer, inner *policy.Rules, name string) bool {
	for _, proto := range []policy.Proto{policy.TCP, policy.UDP} {
		ports, _ := inner.Ports(proto)
		for _, port := range ports {
			if inner.Connect(name, proto, port).Allow && !outer.Connect(name, proto, port).Allow {
				return false
			}
		}
	}
	return true
}

func insideAny(p netip.Prefix, list []string) bool {
	for _, s := range list {
		if outer, err := api.ParseNetCIDR(s); err == nil && inside(p, outer) {
			return true
		}
	}
	return false
}
