package client

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ReadAudit returns records of what was done with a sandbox. With WaitS it waits for the
// next one where there is none.
func (c *Client) ReadAudit(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error) {
	return get[api.AuditRecords](ctx, c, api.MethodAuditRead, p)
}

// VerifyAudit checks a sandbox's audit log. One that was tampered with is no error: OK is
// false.
func (c *Client) VerifyAudit(ctx context.Context, p api.AuditVerifyParams) (api.AuditVerified, error) {
	return get[api.AuditVerified](ctx, c, api.MethodAuditVerify, p)
}

// AuditHead returns the last record's number and hash, to be kept elsewhere.
func (c *Client) AuditHead(ctx context.Context, sandbox string) (api.AuditHead, error) {
	return get[api.AuditHead](ctx, c, api.MethodAuditHead, api.SandboxParams{Sandbox: sandbox})
}

// ListAudit returns the audit logs that are kept, those that were written last first.
func (c *Client) ListAudit(ctx context.Context) ([]api.AuditLog, error) {
	l, err := get[api.AuditLogs](ctx, c, api.MethodAuditList, api.Empty{})
	return l.Logs, err
}
