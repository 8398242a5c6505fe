// Package egress is what sandboxes may reach: reporting the network policy of one, changing it while it runs, and the
// narrower policies of single execs. netfilter puts them in force; what was refused by them is counted by package
// refusals.
//
// A policy is on record before it is in force, and an old one is put back on record when the new one is not taken: what
// a caller was told is forbidden must be so for the next hutchd, too, which reads it there. Policies change one at a
// time, in the turn that changes of limits take as well (Sandbox.Change).
//
// Set.mu guards the narrower policies of one sandbox. It is held while they are written down and put in force, so that
// the file and the kernel have the same; Cgroups, Enforced and the disk are called with it held, and call nothing back.
package egress

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// Config is what Egress needs. All fields are required but EBPF and Reason.
type Config struct {
	Sandboxes Sandboxes
	Networks  Networks
	Cgroups   Cgroups
	// Write replaces a file of JSON, and returns when it is on the disk.
	Write func(path string, v any) error
	// EBPF says that the kernel itself enforces policies, Reason why it does not.
	EBPF   bool
	Reason string
}

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds a sandbox by id or name, Living one that runs or is paused.
	Find(ref string) (Sandbox, error)
	Living(ref string) (Sandbox, error)
}

// Sandbox is one whose policy is asked for, or changes. Its methods may be called from any goroutine.
type Sandbox interface {
	ID() string
	// Dir is its folder on the host, which nothing inside reaches.
	Dir() string
	// Record is a copy of its record.
	Record() api.Sandbox
	// Ledger is what it was refused, Narrowed the narrower policies of its execs.
	Ledger() *refusals.Ledger
	Narrowed() *Set
	// Cgroup is the path of its cgroup; own says that execs have theirs below it.
	Cgroup() (path string, own bool)
	// Network is nil in mode none. Enforced is the policy in the kernel.
	Network() Network
	Enforced() Enforced
	// Change waits for the turn to change what the sandbox may do, until done is called.
	Change() (done func())
	// Note puts a policy on record, for the next hutchd too.
	Note(p api.NetPolicy) error
	// Tell writes what the sandbox may do now where it looks for that, and to the audit log.
	Tell(ctx context.Context, p api.NetPolicy)
}

// Networks know which policies can be put in force.
type Networks interface {
	// Check says whether Update would take a policy.
	Check(p api.NetPolicy) error
	// CheckNarrower refuses a policy of an exec that its sandbox's does not hold.
	CheckNarrower(sandbox, exec api.NetPolicy) error
}

// Network is that of one sandbox.
type Network interface {
	// Update puts a policy in force. On an error the old one stays.
	Update(p api.NetPolicy) error
	// Uses counts connections by rule, in no order, and what was refused of them.
	Uses() []api.NetUse
}

// Enforced is a sandbox whose policy the kernel may hold.
type Enforced interface {
	// Narrow puts a policy in force for the cgroup with a number, beside the sandbox's; Widen forgets one whose cgroup
	// is gone.
	Narrow(cgroup uint64, p api.NetPolicy) error
	Widen(cgroup uint64) error
}

// Cgroups are those of execs, below their sandboxes' own.
type Cgroups interface {
	// Number is the number by which the kernel knows an exec's cgroup, 0 of one that is gone.
	Number(sandbox, exec string) uint64
}

// Egress is what the sandboxes of a daemon may reach. Its methods may be called from any goroutine.
type Egress struct{ cfg Config }

// New is for sandboxes of a daemon.
func New(cfg Config) *Egress { return &Egress{cfg} }

// Get returns what a sandbox may reach and was refused. Wanted is what a policy learns from.
func (e *Egress) Get(ref string) (_ api.Network, wanted []api.NetTarget, _ error) {
	s, err := e.cfg.Sandboxes.Find(ref)
	if err != nil {
		return api.Network{}, nil, err
	}
	rec, l := s.Record(), s.Ledger()
	n := api.Network{Sandbox: s.ID(), Network: rec.Network.NetPolicy, Enforcement: rec.Network.Enforcement}
	if net := s.Network(); net != nil {
		n.Rules = l.Count(net.Uses())
		slices.SortFunc(n.Rules, func(a, b api.NetUse) int { return strings.Compare(a.Rule, b.Rule) })
	}
	all, untold := l.Read()
	n.Denials, n.Failures = refusals.Part(all)
	n.Untold = untold
	return n, l.Wanted(), nil
}

// Update puts another policy in force, or changes of the one that is.
func (e *Egress) Update(ctx context.Context, p api.NetUpdateParams) error {
	if err := p.Validate(); err != nil {
		return err
	}
	s, err := e.cfg.Sandboxes.Living(p.Sandbox)
	if err != nil {
		return err
	}
	net := s.Network()
	if net == nil && (p.Network == nil || p.Network.Effective() != api.NetNone) {
		return api.Errorf(api.FailedPrecondition,
			"change what sandbox %s may reach: it was created with network mode none, in a namespace that hutchd has no way into, "+
				"and its processes cannot move to another", s.ID()).WithField("network.mode").
			WithHint("create another one with mode allow (--network allow), which reaches nothing until network.update allows it")
	}
	defer s.Change()() // one at a time: what one sees is what it leaves
	old := s.Record().Network.NetPolicy
	next, err := p.Apply(old)
	if err != nil {
		return err
	}
	if err := e.cfg.Networks.Check(next); err != nil {
		return err
	}
	if net == nil {
		return nil // mode none, as it was
	}
	if err := s.Note(next); err != nil {
		return errors.Join(api.Errorf(api.Internal, "note the policy of sandbox %s: %w", s.ID(), err).
			WithHint("the policy is as it was; is the disk full?"), s.Note(old))
	}
	if err := net.Update(next); err != nil {
		return errors.Join(err, s.Note(old))
	}
	s.Tell(ctx, next)
	return nil
}
