package exec

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// tellStarted tells that a command runs.
func (r *Exec) tellStarted() {
	r.t.cfg.Events.Emit(api.EventExecStarted, r.s.ID(), r.id, api.StartedEvent{
		Program: program(&r.params), PID: r.PID(), Background: r.params.Background,
	})
	r.auditStart(nil)
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

// tellExited tells how a command ended, and first which limit ended it.
func (r *Exec) tellExited() {
	o := r.Outcome()
	switch o.Verdict {
	case api.VerdictTimeoutWall, api.VerdictTimeoutCPU, api.VerdictDisk, api.VerdictOutput:
		detail := ""
		limits := func(d api.Denial) bool { return !d.Watched() && d.Kind != refusals.Failed }
		if i := slices.IndexFunc(r.denials, limits); i >= 0 {
			detail = r.denials[i].Why
		}
		r.tellLimit(o.Verdict, detail)
	case api.VerdictOOM, api.VerdictPIDs: // mostly told when it happened
		if r.untold(o.Verdict) {
			r.tellLimit(o.Verdict, "")
		}
	}
	e := api.ExitedEvent{ExitCode: o.ExitCode, Signal: o.Signal, Verdict: o.Verdict, DurationMS: o.DurationMS,
		Peaks: o.Peaks}
	r.t.cfg.Events.Emit(api.EventExecExited, r.s.ID(), r.id, e)
	r.auditExit(e)
}

// tellLimit tells that a command has met a limit, whether it ended by it or not.
func (r *Exec) tellLimit(limit api.Verdict, detail string) {
	r.t.emit(api.EventLimitHit, r.s, r.id, api.LimitEvent{Limit: limit, Detail: detail})
}

// Audit notes something of an exec in the log of its sandbox; data holds on to so many bytes.
func (r *Exec) Audit(ctx context.Context, kind api.AuditKind, data any, size int) {
	r.t.audit(ctx, r.s, r.id, kind, data, size)
}

// secrets are values that must not be in a record of r.
func (r *Exec) secrets() []map[string]string {
	_, own := r.s.Env()
	return []map[string]string{own, r.params.Env}
}

// auditStart notes that a command runs, or with an error that it could not.
func (r *Exec) auditStart(err error) {
	if !r.t.cfg.Audit.Wants(api.AuditExec) {
		return
	}
	p := &r.params
	c := api.AuditCommand{
		Argv: p.Argv, Command: p.Command, Cwd: p.Cwd, User: p.User, Env: slices.Sorted(maps.Keys(p.Env)),
		Background: p.Background, TTY: p.Pty != nil, Passed: p.Stdio != nil, Shell: r.shell,
	}
	kind := api.AuditExec
	if err != nil {
		kind, c.Error = api.AuditExecFailed, err.Error()
	} else {
		c.PID = r.PID()
	}
	if stdin, err := excerpt.Decode("stdin", p.Stdin, p.Encoding); err == nil && len(stdin) > 0 {
		c.Stdin = audit.Whole(stdin, r.t.cfg.Audit.Full())
	}
	r.t.cfg.Audit.Note(audit.Entry{
		Sandbox: r.s.ID(), Exec: r.id, By: r.by, Kind: kind, Data: c,
		Secrets: r.secrets(), Size: int64(len(p.Stdin) + len(p.Command)),
	})
}

// auditExit notes how a command ended and what it wrote, as far as hutch has seen it.
func (r *Exec) auditExit(e api.ExitedEvent) {
	if !r.t.cfg.Audit.Wants(api.AuditExecEnd) {
		return
	}
	exit, size := api.AuditExit{ExitedEvent: e}, 0
	for i, to := range []*any{&exit.Stdout, &exit.Stderr} {
		if i < len(r.io.Streams) {
			c := r.io.Streams[i].Audited(r.t.cfg.Audit.Full())
			*to, size = c, size+len(c.Data)
		}
	}
	r.t.cfg.Audit.Note(audit.Entry{
		Sandbox: r.s.ID(), Exec: r.id, Kind: api.AuditExecEnd, Data: exit, Secrets: r.secrets(), Size: int64(size),
	})
}
