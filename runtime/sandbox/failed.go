package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// kindFailed is a denial that is none: a connection that is allowed and has failed. Where a result is made they part: it is counted,
// bounded and attributed as what is refused.
const kindFailed = "failed"

// Failed records that a connection of a sandbox failed outside of it, and tells as Denied does.
func (m *Manager) Failed(sandbox string, e api.FailedEvent) {
	m.mu.Lock()
	s := m.byID[sandbox]
	m.mu.Unlock()
	e.Count = max(1, e.Count)
	if s == nil {
		m.cfg.Events.Emit(api.EventNetworkFailed, sandbox, "", e)
		return
	}
	now := time.Now()
	d := api.Denial{
		Kind: kindFailed, Target: e.Where(), NetTarget: e.NetTarget, Why: e.Why, HowToAllow: e.Hint,
		Count: e.Count, Time: now.UTC().Truncate(time.Millisecond), Refusal: api.Refusal{Errno: e.Errno},
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock() // over Emit: events come in the order of what they tell
	d.Exec = m.attribute(s, d, 0)
	m.audit(context.Background(), s, d.Exec, api.AuditFailed, e, 0)
	s.seen.untold += e.Untold
	s.seen.skipped += e.Untold
	if count, untold, tell := s.seen.denied(d, now); tell {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventNetworkFailed, s.id, d.Exec, e)
	}
}

// lookWhy tells what may be why r has failed, and of which nothing else tells: connections that wait for their servers, as it may have
// lost its patience, and those for which there was no route.
func (m *Manager) lookWhy(r *running) {
	if r.s.net != nil {
		r.s.net.Unanswered()
	}
	m.tellUnrouted(r.s)
}

// TakeRefused is what an exec that goes on was refused, and what has failed, since it was asked last; over says that what it did meanwhile
// has failed. Of an exec that has ended its result has it.
func (m *Manager) TakeRefused(exec string, over bool) (refused []api.Denial, failed []api.Failure) {
	r, err := m.findExec(exec)
	if err != nil {
		return part(nil)
	}
	if over {
		m.lookWhy(r)
	}
	return part(r.takeRefused())
}

// part parts what was refused from what has failed. The former is never nil.
func part(all []api.Denial) (refused []api.Denial, failed []api.Failure) {
	refused = []api.Denial{}
	for _, d := range all {
		if d.Kind != kindFailed {
			refused = append(refused, d)
			continue
		}
		failed = append(failed, api.Failure{
			Target: d.Target, Why: d.Why, Hint: d.HowToAllow, NetTarget: d.NetTarget, Exec: d.Exec, Errno: d.Errno, Count: d.Count, Time: d.Time,
		})
	}
	return refused, failed
}
