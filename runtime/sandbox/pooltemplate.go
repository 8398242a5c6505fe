package sandbox

import (
	"github.com/hutch-sh/hutch/runtime/api"
)

// KeepPool makes the pool of a template what spec says, and fills it in the background. Size 0 is no pool.
func (m *Manager) KeepPool(spec api.PoolSpec, user uint32) error {
	m.mu.Lock()
	p := m.pools[spec.Name]
	switch {
	case p != nil && p.spec.Sandbox.Template != spec.Sandbox.Template:
		m.mu.Unlock()
		if spec.Size == 0 {
			return nil
		}
		return api.Errorf(api.AlreadyExists, "there is a pool %q, which is none of template %s", spec.Name,
			spec.Sandbox.Template).WithField("name").
			WithHint("remove it, or rename the template: hutch pool rm %s", spec.Name)
	case spec.Size == 0:
		if p != nil {
			p.close(m)
		}
	case p == nil:
		p = m.newPool(spec, user)
		if err := m.addPool(p); err != nil {
			m.mu.Unlock()
			return err
		}
		p.fill()
	default:
		p.resize(spec.Size)
	}
	m.mu.Unlock()
	m.savePools()
	return nil
}

// RenewPools removes what waits in the pools of a template, which is another one now, and makes others. What was
// acquired goes on.
func (m *Manager) RenewPools(template string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pools {
		if p.spec.Sandbox.Template != template {
			continue
		}
		p.age++ // of those that are being made, too
		for _, s := range p.ready {
			m.removeLocked(s, "its template has changed")
		}
		p.ready = nil
		p.fill()
	}
}
