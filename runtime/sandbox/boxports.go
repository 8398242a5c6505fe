package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ports"
)

// portsHost is the Manager as package ports uses it.
type portsHost struct{ m *Manager }

func (h portsHost) Find(ref string) (ports.Sandbox, error) {
	s, err := h.m.find(ref)
	return portsBox{h.m, s, 0}, err
}

func (h portsHost) Living(ref string) (ports.Sandbox, error) {
	s, pid, err := h.m.alive(ref)
	return portsBox{h.m, s, pid}, err
}

func (h portsHost) All() (all []ports.Sandbox) {
	for _, s := range h.m.all() {
		all = append(all, portsBox{h.m, s, 0})
	}
	return all
}

// portsBox is a sandbox as package ports uses it, with its PID 1 where it is known to live.
type portsBox struct {
	m   *Manager
	s   *Sandbox
	pid int
}

func (b portsBox) ID() string        { return b.s.id }
func (b portsBox) Ports() *ports.Set { return &b.s.ports }

// Open opens the network namespace that PID 1 is in: hutchd need not keep one for each sandbox.
func (b portsBox) Open() (ports.Carrier, error) {
	ns, err := os.Open(b.m.cfg.Kernel.Proc(b.pid) + "/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of sandbox %s: %w", b.s.id, err)
	}
	defer ns.Close()
	if exited, err := b.m.cfg.Kernel.Exited(b.s.pidfd); err != nil || exited { // the pid may be another's by now
		return nil, errors.Join(err, ended(b.s))
	}
	return b.m.cfg.Networks.Ports(b.s.id, ns)
}

func (b portsBox) Save(list []api.Port) error {
	b.s.mu.Lock()
	b.s.exposed = list
	b.s.mu.Unlock()
	return b.s.save()
}

func (b portsBox) Audit(ctx context.Context, kind api.AuditKind, p api.Port) {
	b.m.audit(ctx, b.s, "", kind, p, 0)
}

// closePorts is the end of what is exposed, before that of the sandbox.
func closePorts(l Launcher, s *Sandbox) error {
	return s.ports.End(func() error {
		if err := l.Settle(context.Background()); !launcherGone(err) {
			return err
		}
		return nil
	})
}
