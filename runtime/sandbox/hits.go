package sandbox

import (
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// hitPause bounds how often a sandbox's limit is reported: a fork bomb meets it for as long
// as it lives.
const hitPause = time.Second

// watchLimits tells of the sandbox's limits that are met, as it happens. What cannot be
// watched is told at the end of the command that failed by it.
func (m *Manager) watchLimits(s *Sandbox) (stop func() error) {
	stopped, err := m.cfg.Cgroups.Watch(s.cgroup, func(limit api.Verdict) { m.hit(s, limit) })
	if err != nil {
		m.cfg.Logger.Debug("watch limits", "sandbox", s.id, "err", err)
	}
	return func() error { stopped(); return nil }
}

// hit tells that a limit of the whole sandbox was met. Whose doing that was is known when
// one exec runs alone.
func (m *Manager) hit(s *Sandbox, limit api.Verdict) {
	s.mu.Lock()
	exec, news := "", false
	if len(s.execs) == 1 {
		for _, r := range s.execs {
			exec, news = r.id, r.told != limit
			r.told = limit
		}
	}
	now := time.Now()
	if !news && now.Sub(s.hits[limit]) < hitPause {
		s.mu.Unlock()
		return
	}
	s.noteHit(limit, now)
	limits := s.record.Limits
	s.mu.Unlock()
	detail := ""
	switch {
	case limit == api.VerdictOOM && limits.MemoryBytes > 0:
		detail = fmt.Sprintf("limits.memory_bytes is %d", limits.MemoryBytes)
	case limit == api.VerdictPIDs && limits.PIDs > 0:
		detail = fmt.Sprintf("limits.pids is %d", limits.PIDs)
	}
	m.emit(api.EventLimitHit, s, exec, api.LimitEvent{Limit: limit, Detail: detail})
}

// noteHit says that limit was reported; s.mu is held.
func (s *Sandbox) noteHit(limit api.Verdict, now time.Time) {
	if s.hits == nil {
		s.hits = map[api.Verdict]time.Time{}
	}
	s.hits[limit] = now
}

// untold reports whether r's end is the first that is heard of its limit.
func (r *running) untold(limit api.Verdict) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.told == limit {
		return false
	}
	r.s.noteHit(limit, time.Now())
	return true
}

// limitOf explains a verdict that a limit of memory or processes has led to: which one,
// whose, and how much there was at most.
func (m *Manager) limitOf(r *running) *api.LimitHit {
	own, limits := &r.bounds.group, r.s.limits()
	st, err := m.cfg.Cgroups.Stats(r.s.cgroup)
	if err != nil { // the sandbox is ending
		st = api.Stats{}
	}
	switch r.verdict {
	case api.VerdictOOM:
		h := &api.LimitHit{Name: "memory_bytes", Of: "sandbox", Limit: limits.MemoryBytes,
			Hint: "use less memory, or allow more: hutch update -m SIZE " + r.s.id}
		if st.Memory != nil {
			h.Peak = st.Memory.PeakBytes
		}
		if own.MemoryBytes > 0 && (limits.MemoryBytes == 0 || own.MemoryBytes <= limits.MemoryBytes) {
			h.Of, h.Limit, h.Peak, h.Hint = "exec", own.MemoryBytes, r.memory,
				"use less memory, or give the command more: limits.memory_bytes"
		}
		return h
	case api.VerdictPIDs:
		h := &api.LimitHit{Name: "pids", Of: "sandbox", Limit: limits.PIDs,
			Hint: "start fewer processes and threads, or allow more: hutch update --pids-limit N " + r.s.id}
		if own.PIDs > 0 && (limits.PIDs == 0 || own.PIDs <= limits.PIDs) {
			h.Of, h.Limit, h.Hint = "exec", own.PIDs,
				"start fewer processes and threads, or give the command more: limits.pids"
		}
		h.Peak = h.Limit // a fork was refused: there were as many
		return h
	}
	return nil
}
