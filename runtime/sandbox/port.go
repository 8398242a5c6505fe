package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ports are the ports of a sandbox that the host reaches.
type ports struct {
	mu     sync.Mutex // one call at a time
	open   Ports      // nil before there was one
	closed bool       // the sandbox is being removed
}

// ExposePort makes a port of a sandbox be reached from the host.
func (m *Manager) ExposePort(ctx context.Context, p api.PortExposeParams, fds Taker) (api.Port, error) {
	if err := p.Validate(); err != nil {
		return api.Port{}, err
	}
	s, pid, err := m.alive(p.Sandbox)
	if err != nil {
		return api.Port{}, err
	}
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	if err := m.openPorts(s, pid); err != nil {
		return api.Port{}, err
	}
	if n := len(s.ports.open.List()); n >= api.MaxPorts {
		return api.Port{}, api.Errorf(api.ResourceExhausted,
			"sandbox %s has %d ports that the host reaches, as many as it may", s.id, n).
			WithHint("close one: hutch port close %s PORT", s.id)
	}
	var listener *os.File
	if p.Listener != nil {
		if listener, err = fds.Take(*p.Listener); err != nil {
			return api.Port{}, err
		}
	}
	port, err := s.ports.open.Expose(p, listener)
	if err != nil {
		return api.Port{}, err
	}
	if err := s.savePorts(); err != nil {
		return api.Port{}, fmt.Errorf("note the ports of sandbox %s: %w", s.id,
			errors.Join(err, s.ports.open.Unexpose(port.Address)))
	}
	m.auditPort(ctx, s, api.AuditPortExposed, port)
	return port, nil
}

// openPorts makes the sandbox's ports, where there are none; s.ports.mu is held.
func (m *Manager) openPorts(s *Sandbox, pid int) error {
	switch {
	case s.ports.closed:
		return api.Errorf(api.NotFound, "sandbox %s is being removed", s.id).WithHint("hutch ps lists the sandboxes")
	case s.ports.open != nil:
		return nil
	}
	ns, err := m.namespace(s, pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	s.ports.open, err = m.cfg.Networks.Ports(s.id, ns)
	return err
}

// namespace opens the network namespace that PID 1 is in: hutchd need not keep one for each sandbox.
func (m *Manager) namespace(s *Sandbox, pid int) (*os.File, error) {
	ns, err := os.Open(m.cfg.Kernel.Proc(pid) + "/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of sandbox %s: %w", s.id, err)
	}
	if exited, err := m.cfg.Kernel.Exited(s.pidfd); err != nil || exited { // the pid may be another's by now
		_ = ns.Close()
		return nil, errors.Join(err, ended(s))
	}
	return ns, nil
}

// Ports lists the ports of a sandbox, or of all where ref is "".
func (m *Manager) Ports(_ context.Context, p api.PortListParams) (api.Ports, error) {
	var of []*Sandbox
	if p.Sandbox != "" {
		s, err := m.find(p.Sandbox)
		if err != nil {
			return api.Ports{}, err
		}
		of = append(of, s)
	} else {
		m.mu.Lock()
		for _, s := range m.byID {
			of = append(of, s)
		}
		m.mu.Unlock()
	}
	list := []api.Port{}
	for _, s := range of {
		s.ports.mu.Lock()
		if s.ports.open != nil && !s.ports.closed {
			list = append(list, s.ports.open.List()...)
		}
		s.ports.mu.Unlock()
	}
	sortPorts(list)
	return api.Ports{Ports: list}, nil
}

func sortPorts(list []api.Port) {
	slices.SortFunc(list, func(a, b api.Port) int {
		return cmp.Or(cmp.Compare(a.Sandbox, b.Sandbox), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
}

// ClosePort ends what is exposed of a port, with its connections, and returns that.
func (m *Manager) ClosePort(ctx context.Context, p api.PortCloseParams) (api.Ports, error) {
	if err := p.Validate(); err != nil {
		return api.Ports{}, err
	}
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.Ports{}, err
	}
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	var closed []api.Port
	if s.ports.open != nil && !s.ports.closed {
		for _, port := range s.ports.open.List() {
			if port.Port == p.Port && (p.Address == "" || port.Address == p.Address) {
				closed = append(closed, port)
			}
		}
	}
	if len(closed) == 0 {
		return api.Ports{}, api.Errorf(api.NotFound, "port %d of sandbox %s is not reached from the host%s", p.Port,
			s.id, at(p.Address)).WithHint("hutch port ls lists those that are")
	}
	sortPorts(closed)
	// first: the next hutchd would go on with sockets that listen no more
	if err := s.savePorts(closed...); err != nil {
		return api.Ports{}, err
	}
	for _, port := range closed {
		err = errors.Join(err, s.ports.open.Unexpose(port.Address))
		m.auditPort(ctx, s, api.AuditPortClosed, port)
	}
	return api.Ports{Ports: closed}, err
}

func at(address string) string {
	if address == "" {
		return ""
	}
	return " at " + address
}

// savePorts notes them for the next hutchd, without some; s.ports.mu is held.
func (s *Sandbox) savePorts(without ...api.Port) error {
	list := slices.DeleteFunc(s.ports.open.List(), func(p api.Port) bool {
		return slices.ContainsFunc(without, func(w api.Port) bool { return w.Address == p.Address })
	})
	for i := range list {
		list[i].Connections, list[i].Accepted = 0, 0
	}
	sortPorts(list)
	s.mu.Lock()
	s.exposed = list
	s.mu.Unlock()
	return s.save()
}

// adoptPorts goes on with what a hutchd before has exposed. A port that is lost does not end the sandbox.
func (m *Manager) adoptPorts(s *Sandbox, pid int) {
	if len(s.exposed) == 0 {
		return
	}
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	err := m.openPorts(s, pid)
	for _, p := range s.exposed {
		if err == nil {
			err = s.ports.open.Adopt(p)
		}
		if err != nil {
			m.cfg.Logger.Warn("go on with a port", "sandbox", s.id, "port", p.Port, "address", p.Address, "err", err)
		}
	}
}

// closePorts is the end of them, before that of the sandbox: somebody else may listen there then.
func (m *Manager) closePorts(s *Sandbox) error {
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	was := s.ports.closed
	if s.ports.closed = true; was || s.ports.open == nil {
		return nil
	}
	err := s.ports.open.Close()
	if serr := m.cfg.Launcher.Settle(context.Background()); !launcherGone(serr) {
		err = errors.Join(err, serr)
	}
	return err
}

// auditPorts records that a stop closes what is exposed: nothing opens it again but another port.expose.
func (m *Manager) auditPorts(s *Sandbox) {
	s.ports.mu.Lock()
	defer s.ports.mu.Unlock()
	if s.ports.open == nil || s.ports.closed {
		return
	}
	for _, port := range s.ports.open.List() {
		m.auditPort(context.Background(), s, api.AuditPortClosed, port)
	}
}

// auditPort records who has opened a way into the sandbox, or closed it; never its token.
func (m *Manager) auditPort(ctx context.Context, s *Sandbox, kind api.AuditKind, p api.Port) {
	p.Token, p.URL = "", ""
	m.audit(ctx, s, "", kind, p, 0)
}
