package sandbox

import (
	"context"
	"maps"
	"slices"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// noAudit is for managers whose sandboxes' doings nobody records.
type noAudit struct{}

func (noAudit) Note(audit.Entry)         {}
func (noAudit) Wants(api.AuditKind) bool { return false }
func (noAudit) Full() bool               { return false }

// emit tells subscribers of events, and the audit log, which has the same word for it.
func (m *Manager) emit(kind api.EventKind, s *Sandbox, exec string, data any) {
	m.cfg.Events.Emit(kind, s.id, exec, data)
	m.audit(context.Background(), s, exec, api.AuditKind(kind), data, 0)
}

// audit notes what happened in s's log, by whose call as ctx knows; data holds on to so many bytes.
func (m *Manager) audit(ctx context.Context, s *Sandbox, exec string, kind api.AuditKind, data any, size int) {
	m.cfg.Audit.Note(audit.Entry{
		Sandbox: s.id, Exec: exec, By: audit.Caller(ctx), Kind: kind, Data: data,
		Secrets: []map[string]string{s.spec.Env}, Size: int64(size),
	})
}

func names(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }

// auditCreated notes what a sandbox was made of.
func (m *Manager) auditCreated(ctx context.Context, s *Sandbox) {
	rec, sp := s.Record(), &s.spec
	m.audit(ctx, s, "", api.AuditCreated, api.AuditSandbox{
		Name: rec.Name, Image: rec.Image, UID: s.user, User: rec.User, Env: names(sp.Env), Workspace: sp.Workspace,
		Mounts: sp.Mounts, Limits: rec.Limits, Network: rec.Network, Isolation: rec.Isolation,
	}, 0)
}

// auditExec notes that a command runs, or with an error that it could not.
func (m *Manager) auditExec(r *running, err error) {
	if !m.cfg.Audit.Wants(api.AuditExec) {
		return
	}
	p := &r.params
	c := api.AuditCommand{
		Argv: p.Argv, Command: p.Command, Cwd: p.Cwd, User: p.User, Env: names(p.Env), Background: p.Background,
		TTY: p.Pty != nil, Passed: p.Stdio != nil, Shell: r.shell,
	}
	kind := api.AuditExec
	if err != nil {
		kind, c.Error = api.AuditExecFailed, err.Error()
	} else {
		c.PID = r.exec.PID
	}
	if stdin, err := excerpt.Decode("stdin", p.Stdin, p.Encoding); err == nil && len(stdin) > 0 {
		c.Stdin = audit.Whole(stdin, m.cfg.Audit.Full())
	}
	m.cfg.Audit.Note(audit.Entry{
		Sandbox: r.s.id, Exec: r.id, By: r.by, Kind: kind, Data: c,
		Secrets: []map[string]string{r.s.spec.Env, p.Env}, Size: int64(len(p.Stdin) + len(p.Command)),
	})
}

// auditExit notes how a command ended and what it wrote, as far as hutch has seen it.
func (m *Manager) auditExit(r *running, e api.ExitedEvent) {
	if !m.cfg.Audit.Wants(api.AuditExecEnd) {
		return
	}
	exit, size := api.AuditExit{ExitedEvent: e}, 0
	for i, to := range []*any{&exit.Stdout, &exit.Stderr} {
		if i < len(r.io.streams) {
			c := r.io.streams[i].content(m.cfg.Audit.Full())
			*to, size = c, size+len(c.Data)
		}
	}
	m.cfg.Audit.Note(audit.Entry{
		Sandbox: r.s.id, Exec: r.id, Kind: api.AuditExecEnd, Data: exit,
		Secrets: []map[string]string{r.s.spec.Env, r.params.Env}, Size: int64(size),
	})
}

// content is what is known of a stream: its beginning, or what is kept of a long one.
func (st *stream) content(full bool) *audit.Bytes {
	total, _ := st.known()
	c := &audit.Bytes{Total: total, Full: full}
	if total > 0 {
		// Without the bytes, their number is worth a record all the same.
		c.Data, c.From, _ = st.read(0, min(total, audit.Digested))
	}
	return c
}

// auditShell notes a command in a shell: its beginning, or with a result its end.
func (m *Manager) auditShell(ctx context.Context, sh *shell, run *shellRun, command string) {
	kind, a := api.AuditShell, api.AuditShellRun{Shell: sh.id, Run: run.Run, Command: command}
	if command == "" {
		if kind = api.AuditShellEnd; run.err != nil {
			a.Error = run.err.Error()
		}
		if run.End != nil {
			code := run.End.ExitCode
			a.ExitCode, a.Verdict, a.DurationMS = &code, run.End.Verdict, run.End.DurationMS
		}
	}
	m.audit(ctx, sh.r.s, sh.r.id, kind, a, len(command))
}
