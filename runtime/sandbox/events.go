package sandbox

import (
	"path"
	"slices"

	"github.com/hutch-sh/hutch/runtime/api"
)

// noEvents is for managers whose events nobody keeps.
type noEvents struct{}

func (noEvents) Emit(api.EventKind, string, string, any) {}

// stateChanged tells that a sandbox has a new state.
func (m *Manager) stateChanged(s *Sandbox, to api.State, reason string) {
	m.emit(api.EventSandboxState, s, "", api.StateEvent{
		State: to, Reason: reason, Name: s.name, Image: s.spec.Image,
	})
}

// execStarted tells that a command runs.
func (m *Manager) execStarted(r *running) {
	m.cfg.Events.Emit(api.EventExecStarted, r.s.id, r.id, api.StartedEvent{
		Program: program(&r.params), PID: r.exec.PID, Background: r.params.Background,
	})
	m.auditExec(r, nil)
}

// program is what runs, without arguments: they may hold secrets.
func program(p *api.ExecParams) string {
	if len(p.Argv) == 0 {
		return "sh"
	}
	name := p.Argv[0]
	if len(name) > 256 {
		name = path.Base(name)
	}
	return name[:min(len(name), 256)]
}

// execExited tells how a command ended, and first which limit ended it.
func (m *Manager) execExited(r *running) {
	o := r.outcome()
	switch o.Verdict {
	case api.VerdictTimeoutWall, api.VerdictTimeoutCPU, api.VerdictDisk, api.VerdictOutput:
		detail := ""
		if i := slices.IndexFunc(r.denials, func(d api.Denial) bool {
			return !d.Watched() &&
				d.Kind != kindFailed
		}); i >= 0 {
			detail = r.denials[i].Why
		}
		m.limitHit(r, o.Verdict, detail)
	case api.VerdictOOM, api.VerdictPIDs: // mostly told when it happened
		if r.untold(o.Verdict) {
			m.limitHit(r, o.Verdict, "")
		}
	}
	e := api.ExitedEvent{ExitCode: o.ExitCode, Signal: o.Signal, Verdict: o.Verdict, DurationMS: o.DurationMS,
		Peaks: o.Peaks}
	m.cfg.Events.Emit(api.EventExecExited, r.s.id, r.id, e)
	m.auditExit(r, e)
}

// limitHit tells that a command has met a limit, whether it ended by it or not.
func (m *Manager) limitHit(r *running, limit api.Verdict, detail string) {
	m.emit(api.EventLimitHit, r.s, r.id, api.LimitEvent{Limit: limit, Detail: detail})
}
