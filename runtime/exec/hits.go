package exec

import (
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// hitPause bounds how often a sandbox's limit is reported: a fork bomb meets it for as long
// as it lives.
const hitPause = time.Second

// Hit tells that a limit of the whole sandbox was met. Whose doing that was is known when
// one exec runs alone.
func (t *Table) Hit(s Sandbox, limit api.Verdict) {
	exec, tell := s.Commands().hit(limit)
	if !tell {
		return
	}
	limits, detail := s.Record().Limits, ""
	switch {
	case limit == api.VerdictOOM && limits.MemoryBytes > 0:
		detail = fmt.Sprintf("limits.memory_bytes is %d", limits.MemoryBytes)
	case limit == api.VerdictPIDs && limits.PIDs > 0:
		detail = fmt.Sprintf("limits.pids is %d", limits.PIDs)
	}
	t.emit(api.EventLimitHit, s, exec, api.LimitEvent{Limit: limit, Detail: detail})
}

// hit says whether a limit that was met is to be told, and of which exec.
func (set *Set) hit(limit api.Verdict) (exec string, tell bool) {
	set.mu.Lock()
	defer set.mu.Unlock()
	news := false
	if len(set.running) == 1 {
		for _, r := range set.running {
			exec, news = r.id, r.told != limit
			r.told = limit
		}
	}
	now := time.Now()
	if !news && now.Sub(set.hits[limit]) < hitPause {
		return exec, false
	}
	set.noteHit(limit, now)
	return exec, true
}

// noteHit says that limit was reported; Set.mu is held.
func (set *Set) noteHit(limit api.Verdict, now time.Time) {
	if set.hits == nil {
		set.hits = map[api.Verdict]time.Time{}
	}
	set.hits[limit] = now
}

// untold reports whether r's end is the first that is heard of its limit.
func (r *Exec) untold(limit api.Verdict) bool {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if r.told == limit {
		return false
	}
	r.set.noteHit(limit, time.Now())
	return true
}

// limitMet explains a verdict that a limit of memory or processes has led to: which one,
// whose, and how much there was at most.
func (r *Exec) limitMet() *api.LimitHit {
	own, limits := &r.bounds.group, r.s.Record().Limits
	at, _ := r.s.Cgroup()
	st, err := r.t.cfg.Cgroups.Stats(at)
	if err != nil { // the sandbox is ending
		st = api.Stats{}
	}
	switch r.verdict {
	case api.VerdictOOM:
		h := &api.LimitHit{Name: "memory_bytes", Of: "sandbox", Limit: limits.MemoryBytes,
			Hint: "use less memory, or allow more: hutch update -m SIZE " + r.s.ID()}
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
			Hint: "start fewer processes and threads, or allow more: hutch update --pids-limit N " + r.s.ID()}
		if own.PIDs > 0 && (limits.PIDs == 0 || own.PIDs <= limits.PIDs) {
			h.Of, h.Limit, h.Hint = "exec", own.PIDs,
				"start fewer processes and threads, or give the command more: limits.pids"
		}
		h.Peak = h.Limit // a fork was refused: there were as many
		return h
	}
	return nil
}
