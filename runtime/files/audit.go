package files

import (
	"context"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// note notes what was done with a file: data was given, out and reply came back.
func (f *Files) note(ctx context.Context, s Sandbox, op, user string, req *filesapi.Request, data, out []byte,
	reply *filesapi.Reply, err error) {
	kind := api.AuditKind(op)
	wanted, whole := s.Audited(kind)
	if op == api.MethodFSList || op == api.MethodFSStat || !wanted {
		return
	}
	a := api.AuditFile{Path: excerpt.Valid([]byte(req.Path)), To: excerpt.Valid([]byte(req.To)), User: user}
	if err != nil {
		a.Error = err.Error()
	}
	content := data
	if op == api.MethodFSRead {
		content = out
	}
	if req.Op == filesapi.OpLines || req.Op == filesapi.OpSync { // JSON: what was read, or a list of names
		content = nil
	}
	if len(content) > 0 {
		a.Content = audit.Whole(content, whole)
	} else if reply != nil {
		a.Bytes = reply.Bytes
	}
	if reply != nil {
		a.Entries = reply.Count
	}
	s.Audit(ctx, kind, a, min(len(content), audit.Digested))
}
