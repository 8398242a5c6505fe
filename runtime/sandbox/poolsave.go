package sandbox

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
)

// configurePools makes the pools of the configuration file what it says; those that calls made stay.
func (m *Manager) configurePools(specs []api.PoolSpec) {
	m.mu.Lock()
	if m.closed || !m.started {
		m.mu.Unlock()
		return
	}
	for _, p := range m.pools {
		wanted := slices.ContainsFunc(specs, func(s api.PoolSpec) bool { return s.Name == p.spec.Name })
		if p.configured && !wanted {
			p.close(m)
		}
	}
	for _, spec := range specs {
		p := m.pools[spec.Name]
		if p != nil && (p.spec.Ahead() != spec.Ahead() || !reflect.DeepEqual(p.spec.Sandbox, spec.Sandbox)) {
			p.close(m) // what waits is another thing now
			p = nil
		}
		if p == nil {
			p = m.newPool(spec, m.cfg.Owner)
			if err := m.addPool(p); err != nil {
				break // the daemon ends
			}
		}
		p.configured = true
		p.resize(spec.Size)
	}
	m.mu.Unlock()
	m.savePools()
}

// savedPool is one of pools.json, which the next hutchd reads.
type savedPool struct {
	Spec       api.PoolSpec `json:"spec"`
	User       uint32       `json:"user"`
	Configured bool         `json:"configured,omitempty"`
}

// poolsFile is beside the folder of the sandboxes.
func (m *Manager) poolsFile() string { return filepath.Join(filepath.Dir(m.cfg.Dir), "pools.json") }

// savePools tells the next hutchd which pools there are.
func (m *Manager) savePools() {
	m.poolsMu.Lock() // the last one writes what holds last
	defer m.poolsMu.Unlock()
	m.mu.Lock()
	all := []savedPool{}
	for _, p := range m.pools {
		all = append(all, savedPool{Spec: p.spec, User: p.user, Configured: p.configured})
	}
	m.mu.Unlock()
	if err := writeJSON(m.poolsFile(), all); err != nil {
		m.cfg.Logger.Warn("save the list of pools", "err", err)
	}
}

// adoptPools takes over the pools of a hutchd before, whose sandboxes have been taken over, and begins with
// those of the configuration.
func (m *Manager) adoptPools() {
	var all []savedPool
	data, err := os.ReadFile(m.poolsFile())
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.cfg.Logger.Error("take over the pools; sandboxes that wait are removed", "err", err)
	}
	m.mu.Lock()
	for _, sp := range all {
		if sp.Spec.Validate() != nil {
			continue
		}
		p := m.newPool(sp.Spec, sp.User)
		p.configured = sp.Configured
		_ = m.addPool(p) // nobody else can have added one yet
	}
	for _, s := range m.byID {
		r := s.Record()
		if r.State != api.Waiting {
			s.taken = r.Pool != ""
			continue
		}
		if p := m.pools[r.Pool]; p != nil {
			s.pool = p
			p.ready = append(p.ready, s)
		} else {
			m.removeLocked(s, "its pool is gone")
		}
	}
	for _, p := range m.pools {
		p.later(refillAfter)
	}
	m.started = true
	m.mu.Unlock()
	m.configurePools(m.settings.Load().Pools)
}
