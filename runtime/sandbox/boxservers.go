package sandbox

import (
	"net/netip"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// serversBox is a sandbox as package servers uses it.
type serversBox struct {
	m *Manager
	s *Sandbox
}

func (b serversBox) Proc() string {
	if pid := b.s.Record().PID; pid != 0 {
		return b.m.cfg.Kernel.Proc(pid)
	}
	return ""
}

func (b serversBox) Alone() bool {
	if b.s.net == nil {
		return true
	}
	_, way, _ := b.s.net.State()
	return strings.HasPrefix(way, "tproxy") // in other ways hutchd listens where programs do, too
}

func (b serversBox) Exited() <-chan struct{} { return b.s.exited }

func (b serversBox) Opened(at netip.AddrPort) {
	b.m.cfg.Events.Emit(api.EventPortOpened, b.s.id, "", api.PortEvent{Port: int(at.Port()),
		Listen: at.Addr().String(), Addresses: b.s.exposedAt(int(at.Port()))})
}

// exposedAt is where the host reaches a port.
func (s *Sandbox) exposedAt(port int) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.exposed {
		if s.exposed[i].Port == port {
			list = append(list, s.exposed[i].Address)
		}
	}
	return list
}
