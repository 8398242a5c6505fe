package sandbox

import (
	"context"
	"maps"
	"slices"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// noEvents and noAudit are for managers whose events nobody keeps, and whose sandboxes' doings nobody records.
type (
	noEvents struct{}
	noAudit  struct{}
)

func (noEvents) Emit(api.EventKind, string, string, any) {}

func (noAudit) Note(audit.Entry)         {}
func (noAudit) Wants(api.AuditKind) bool { return false }
func (noAudit) Full() bool               { return false }

// journal is where it is noted what happens to sandboxes.
type journal struct {
	events Events
	log    Audit
}

// emit tells subscribers of events, and the audit log, which has the same word for it.
func (j *journal) emit(kind api.EventKind, s *Sandbox, exec string, data any) {
	j.events.Emit(kind, s.id, exec, data)
	j.audit(context.Background(), s, exec, api.AuditKind(kind), data, 0)
}

// audit notes what happened in s's log, by whose call as ctx knows; data holds on to so many bytes.
func (j *journal) audit(ctx context.Context, s *Sandbox, exec string, kind api.AuditKind, data any, size int) {
	j.log.Note(audit.Entry{
		Sandbox: s.id, Exec: exec, By: audit.Caller(ctx), Kind: kind, Data: data,
		Secrets: []map[string]string{s.spec.Env}, Size: int64(size),
	})
}

// stateChanged tells that a sandbox has a new state.
func (j *journal) stateChanged(s *Sandbox, to api.State, reason string) {
	j.emit(api.EventSandboxState, s, "", api.StateEvent{
		State: to, Reason: reason, Name: s.name, Image: s.spec.Image,
	})
}

// created notes what a sandbox was made of.
func (j *journal) created(ctx context.Context, s *Sandbox) {
	rec, sp := s.Record(), &s.spec
	j.audit(ctx, s, "", api.AuditCreated, api.AuditSandbox{
		Name: rec.Name, Image: rec.Image, UID: s.user, User: rec.User, Env: slices.Sorted(maps.Keys(sp.Env)),
		Workspace: sp.Workspace, Mounts: sp.Mounts, Limits: rec.Limits, Network: rec.Network, Isolation: rec.Isolation,
	}, 0)
}
