package main

import (
	"context"
	"path/filepath"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

var _ sandbox.Audit = (*audit.Logs)(nil)

// openAudit opens the logs of what is done with sandboxes. They outlive the sandboxes, and
// the daemons: a private one's, too.
func (d *daemon) openAudit() (*audit.Logs, error) {
	return audit.Open(filepath.Join(d.cfg.Data, "audit"), d.cfg.Settings.Audit, d.log)
}

// auditID is that of a living sandbox by its name; others have logs by their ids only.
func (d *daemon) auditID(ref string) string {
	if ref == api.AuditHost { // a sandbox that is called so has its id
		return ref
	}
	if s, err := d.manager.Get(ref); err == nil {
		return s.ID
	}
	return ref
}

func (d *daemon) readAudit(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error) {
	p.Sandbox = d.auditID(p.Sandbox)
	return d.audit.Read(ctx, p)
}

func (d *daemon) verifyAudit(ctx context.Context, p api.AuditVerifyParams) (api.AuditVerified, error) {
	p.Sandbox = d.auditID(p.Sandbox)
	return d.audit.Verify(ctx, p)
}
