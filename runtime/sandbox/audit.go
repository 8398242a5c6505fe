package sandbox

import (
	"context"
	"maps"
	"slices"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
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
