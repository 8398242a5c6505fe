package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hutch-sh/hutch/runtime/about"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/egress"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// egressHost is the Manager as package egress uses it, refusalsHost as package refusals does.
type (
	egressHost   struct{ m *Manager }
	refusalsHost struct{ m *Manager }
)

func (h egressHost) Find(ref string) (egress.Sandbox, error) {
	s, err := h.m.find(ref)
	return egressBox{h.m, s}, err
}

func (h egressHost) Living(ref string) (egress.Sandbox, error) {
	s, _, err := h.m.alive(ref)
	return egressBox{h.m, s}, err
}

func (h refusalsHost) Listed(id string) (refusals.Sandbox, bool) {
	s := h.m.of(id)
	return egressBox{h.m, s}, s != nil
}

// egressBox is a sandbox as packages egress and refusals use it.
type egressBox struct {
	m *Manager
	s *Sandbox
}

func (b egressBox) ID() string                { return b.s.id }
func (b egressBox) Dir() string               { return b.s.dir }
func (b egressBox) Record() api.Sandbox       { return b.s.Record() }
func (b egressBox) Ledger() *refusals.Ledger  { return &b.s.seen }
func (b egressBox) Narrowed() *egress.Set     { return &b.s.narrowed }
func (b egressBox) Cgroup() (string, bool)    { return b.s.cgroup, b.s.grouped }
func (b egressBox) Enforced() egress.Enforced { return b.s.enforced }
func (b egressBox) Guards() guard.Folders     { return b.s.folders.Guards }

func (b egressBox) Network() egress.Network {
	if b.s.net == nil { // an interface with a nil one in it is not nil
		return nil
	}
	return b.s.net
}

func (b egressBox) Change() (done func()) {
	b.s.updates.Lock()
	return b.s.updates.Unlock
}

func (b egressBox) Note(p api.NetPolicy) error {
	network := api.SandboxNetwork{NetPolicy: p, Enforcement: b.m.cfg.Host.Enforcement(p, b.s.net)}
	b.s.note(func(r *api.Sandbox) { r.Network = network })
	return b.s.save()
}

func (b egressBox) Tell(ctx context.Context, p api.NetPolicy) {
	b.m.tell(b.s)
	b.m.audit(ctx, b.s, "", api.AuditPolicy, p, 0)
}

func (b egressBox) Attribute(d api.Denial, cgroup uint64) (exec string) {
	return b.m.Execs.Attribute(execBoxOf(b.m, b.s), d, cgroup)
}

func (b egressBox) Caller(d api.Denial, r *guestapi.Refused) (exec string) {
	return b.s.execs.Caller(guestInit{b.s.guest}, d, r)
}

func (b egressBox) HoldEarly(r guestapi.Refused) bool {
	return b.s.execs.HoldEarly(guestInit{b.s.guest}, r)
}

func (b egressBox) Audit(kind api.AuditKind, exec string, data any) {
	b.m.audit(context.Background(), b.s, exec, kind, data, 0)
}

func (b egressBox) ReadOnly() (list []refusals.ReadOnly) {
	for _, m := range b.s.root.Binds {
		if m.ReadOnly {
			list = append(list, refusals.ReadOnly{Target: m.Target, Rule: m.Target + " read-only",
				Why: m.Target + " is read-only: it is the host's own",
				How: "use an image instead of host, whose files are the sandbox's"})
		}
	}
	for _, p := range []string{about.Target, "/proc", "/sys"} {
		list = append(list, refusals.ReadOnly{Target: p, Rule: p + " read-only",
			Why: p + " tells the sandbox something, and takes nothing"})
	}
	for _, m := range b.s.spec.Mounts {
		if m.Mode == api.ModeRO {
			list = append(list, refusals.ReadOnly{Target: m.Target, Rule: m.Target + " read-only",
				Why: m.Target + " was asked for read-only",
				How: fmt.Sprintf("-v %s:%s:rw, or :overlay to keep it as it is", cmp.Or(m.Volume, m.Source), m.Target)})
		}
	}
	if w := b.s.spec.Workspace; w != nil && w.Mode == api.ModeRO {
		list = append(list, refusals.ReadOnly{Target: workspace.Target, Rule: "workspace read-only",
			Why: "the workspace was asked for read-only",
			How: fmt.Sprintf("--workspace %s:rw, or :overlay to keep the host's as it is", w.Path)})
	}
	return list
}

// watchInit has PID 1 report the system calls that the sandbox is refused, and its servers.
func (b egressBox) watchInit() {
	b.s.guest.OnRefused(func(r guestapi.Refused) { b.m.Refusals.Call(b, r) })
	b.s.guest.OnListen(func() { b.s.servers.Listens(serversBox(b), b.m.watchers.Go) })
}
