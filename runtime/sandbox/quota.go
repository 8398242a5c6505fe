package sandbox

import "github.com/hutch-sh/hutch/runtime/api"

// Quotas are counted by what sandboxes may use, not by what they do: a promise that was
// made can always be kept. They are one user's, as the monitor authenticated it.

// share is what a sandbox counts for. Without a limit it may use all there is.
func (h *Host) share(l *api.Limits) (cpus float64, memory int64) {
	cpus, memory = l.CPUs, l.MemoryBytes
	if cpus <= 0 {
		cpus = float64(h.CPUs)
	}
	if memory <= 0 {
		memory = h.MemoryBytes
	}
	return cpus, memory
}

// checkQuota refuses n sandboxes of a user, with limits l each, when that user's would be too many
// with them or too large. except, when it is one of them, does not count. m.mu is held.
func (m *Manager) checkQuota(user uint32, l *api.Limits, except *Sandbox, n int) error {
	q := m.settings.Load().Quotas
	if q == (api.Quotas{}) {
		return nil
	}
	count := n
	cpus, memory := m.cfg.Host.share(l)
	cpus, memory = cpus*float64(n), memory*int64(n)
	ownCPUs, ownMemory := cpus, memory
	for _, s := range m.byID {
		if s.user != user || s == except {
			continue
		}
		s.mu.Lock()
		counts, limits := s.record.State != api.Stopped && s.record.State != api.Failed, s.record.Limits
		s.mu.Unlock()
		count++ // its files and its record are there still
		if counts {
			c, b := m.cfg.Host.share(&limits)
			cpus, memory = cpus+c, memory+b
		}
	}
	for _, b := range []struct {
		name          string
		asked, of, by float64
	}{
		{"sandboxes", float64(n), float64(q.Sandboxes), float64(count)},
		{"cpus", ownCPUs, q.CPUs, cpus},
		{"memory_bytes", float64(ownMemory), float64(q.MemoryBytes), float64(memory)},
	} {
		// A sum of fractions may be off by a hair.
		if b.of > 0 && b.by > b.of+1e-9 {
			field := "limits." + b.name
			if b.name == "sandboxes" {
				field = ""
			}
			return api.Errorf(api.ResourceExhausted,
				"quotas.%s: %s more would make %s of the %s that one user may have", b.name, plain(b.asked),
				plain(b.by), plain(b.of)).
				WithField(field).WithHint("remove a sandbox (hutch ps -a lists them), ask for less, or raise quotas.%s in the configuration file", b.name)
		}
	}
	return nil
}
