package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

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
		Kind: exec.Failed, Target: e.Where(), NetTarget: e.NetTarget, Why: e.Why, HowToAllow: e.Hint,
		Count: e.Count, Time: time.Now().UTC().Truncate(time.Millisecond), Refusal: api.Refusal{Errno: e.Errno},
	}
	d.Exec = m.Execs.Attribute(m.execBox(s), d, 0)
	m.audit(context.Background(), s, d.Exec, api.AuditFailed, e, 0)
	s.seen.Enter(d, e.Untold, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventNetworkFailed, s.id, d.Exec, e)
	})
}
