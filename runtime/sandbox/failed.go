package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// kindFailed is a denial that is none: a connection that is allowed and has failed. Where a result is made they part:
// it is counted, bounded and attributed as what is refused.
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
	d := api.Denial{
		Kind: kindFailed, Target: e.Where(), NetTarget: e.NetTarget, Why: e.Why, HowToAllow: e.Hint,
		Count: e.Count, Time: time.Now().UTC().Truncate(time.Millisecond), Refusal: api.Refusal{Errno: e.Errno},
	}
	d.Exec = m.attribute(s, d, 0)
	m.audit(context.Background(), s, d.Exec, api.AuditFailed, e, 0)
	s.seen.Enter(d, e.Untold, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventNetworkFailed, s.id, d.Exec, e)
	})
}

// look is how far one has looked at what is told only behind a command that failed. What came before is of others.
type look struct {
	at       time.Time
	unrouted int64 // of mode none
}

// later is the later one of two looks. A counter that cannot be read is none that has gone back.
func (l look) later(o look) look {
	if o.at.After(l.at) {
		l.at = o.at
	}
	l.unrouted = max(l.unrouted, o.unrouted)
	return l
}

// beginLook notes where what r does begins: a command, or one of those of a shell or of an interpreter.
func (m *Manager) beginLook(r *running) {
	s := r.s
	s.looking.Lock()
	defer s.looking.Unlock()
	if s.looked.at.IsZero() { // nothing has run in it that could have counted
		s.looked.at = time.Now()
		r.begun = s.looked
		return
	}
	r.begun = m.lookNow(s)
}

func (m *Manager) lookNow(s *Sandbox) look {
	l := look{at: time.Now()}
	if m.countsRoutes(s) {
		l.unrouted = unrouted(s.Record().PID)
	}
	return l
}

// lookWhy ends what r does; where it has succeeded alone nobody looks, as this is behind each command. If it has failed
// it tells what may be why, and of which nothing else tells: connections that wait for their servers, as it may have
// lost its patience, those for which there was no route, and names that got no answer of use. What came before it
// began, or before another one ended beside it, may be that one's, which has succeeded or was told about it.
func (m *Manager) lookWhy(r *running, failed bool) {
	s := r.s
	s.mu.Lock()
	company := r.company
	s.mu.Unlock()
	if !failed && !company { // whoever comes next looks when it begins
		return
	}
	s.looking.Lock()
	now, from := m.lookNow(s), r.begun.later(s.looked)
	s.looked = now.later(s.looked)
	s.looking.Unlock()
	if !failed {
		return
	}
	if s.net != nil {
		s.net.Unanswered(from.at)
	}
	if n := now.unrouted - from.unrouted; n > 0 {
		m.tellUnrouted(s, n)
	}
}

// TakeRefused is what an exec that goes on was refused, and what has failed, since it was asked last; over says that
// what it did meanwhile has failed. Of an exec that has ended its result has it.
func (m *Manager) TakeRefused(exec string, over bool) (refused []api.Denial, failed []api.Failure) {
	r, err := m.findExec(exec)
	if err != nil {
		return part(nil)
	}
	m.lookWhy(r, over)
	return part(r.takeRefused())
}

// BeginRefused says that an exec that goes on does something new: what was refused between two such things is of
// neither.
func (m *Manager) BeginRefused(exec string) {
	if r, err := m.findExec(exec); err == nil {
		r.takeRefused()
		m.beginLook(r)
	}
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
			Target: d.Target, Why: d.Why, Hint: d.HowToAllow, NetTarget: d.NetTarget, Exec: d.Exec, Errno: d.Errno,
			Count: d.Count, Time: d.Time,
		})
	}
	return refused, failed
}
