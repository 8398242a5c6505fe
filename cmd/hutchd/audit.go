package main

import (
	"context"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
)

var (
	_ sandbox.Audit = (*audit.Logs)(nil)
	_ server.Audit  = auditBackend{}
)

// openAudit opens the logs of what is done with sandboxes. They outlive the sandboxes, and
// the daemons: a private one's, too.
func (d *daemon) openAudit() (*audit.Logs, error) {
	return audit.Open(filepath.Join(d.cfg.Data, "audit"), d.cfg.Settings.Audit, d.log)
}

// auditBackend answers audit.*.
type auditBackend struct{ d *daemon }

// id is that of a living sandbox by its name; others have logs by their ids only.
func (b auditBackend) id(ref string) string {
	if ref == api.AuditHost { // a sandbox that is called so has its id
		return ref
	}
	if s, err := b.d.manager.Get(ref); err == nil {
		return s.ID
	}
	return ref
}

func (b auditBackend) ReadAudit(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error) {
	if err := p.Validate(); err != nil {
		return api.AuditRecords{}, err
	}
	p.Sandbox = b.id(p.Sandbox)
	return b.d.audit.Read(ctx, p)
}

func (b auditBackend) VerifyAudit(ctx context.Context, p api.AuditVerifyParams) (api.AuditVerified, error) {
	if err := p.Validate(); err != nil {
		return api.AuditVerified{}, err
	}
	p.Sandbox = b.id(p.Sandbox)
	return b.d.audit.Verify(ctx, p)
}

func (b auditBackend) AuditHead(ctx context.Context, ref string) (api.AuditHead, error) {
	return b.d.audit.Head(ctx, b.id(ref))
}

func (b auditBackend) AuditLogs(ctx context.Context) ([]api.AuditLog, error) {
	return b.d.audit.List(ctx)
}
