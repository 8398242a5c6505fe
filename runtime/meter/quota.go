package meter

import (
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
)

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

// CheckQuota refuses n sandboxes of a user, with limits l each, when that user's would be too many with them or too
// large. There are others of the user's already, of which those that use anything have the limits running.
func (m *Meters) CheckQuota(q api.Quotas, l *api.Limits, n, others int, running []api.Limits) error {
	h, count := &m.cfg.Host, n+others
	cpus, memory := h.share(l)
	cpus, memory = cpus*float64(n), memory*int64(n)
	ownCPUs, ownMemory := cpus, memory
	for i := range running {
		c, b := h.share(&running[i])
		cpus, memory = cpus+c, memory+b
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
				WithField(field).
				WithHint("remove a sandbox (hutch ps -a lists them), ask for less, or raise quotas.%s in the configuration file",
					b.name)
		}
	}
	return nil
}

// plain is a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
