package server

import (
	"context"
	"encoding/json"

	"github.com/hutch-sh/hutch/runtime/api"
)

type fakeAudit struct{}

func (fakeAudit) ReadAudit(_ context.Context, p api.AuditReadParams) (api.AuditRecords, error) {
	return api.AuditRecords{Sandbox: p.Sandbox, Records: []json.RawMessage{}}, nil
}

func (fakeAudit) VerifyAudit(_ context.Context, p api.AuditVerifyParams) (api.AuditVerified, error) {
	return api.AuditVerified{Sandbox: p.Sandbox, Issues: []api.AuditBug{}}, nil
}

func (fakeAudit) AuditHead(context.Context, string) (api.AuditHead, error) {
	return api.AuditHead{}, nil
}
func (fakeAudit) AuditLogs(context.Context) ([]api.AuditLog, error) { return nil, nil }
