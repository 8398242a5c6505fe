package scan

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// CheckImports refuses a run whose code imports what is not in its AllowedImports, as far as that can be told before it runs; the hook of the
// interpreter refuses the rest. Code that is no Python is the interpreter's to refuse, whose error says more.
func (s *Scanner) CheckImports(ctx context.Context, p *api.CodeParams) error {
	res, err := s.Scan(ctx, api.ScanParams{Language: p.Language, Code: p.Code, AllowedImports: p.AllowedImports})
	if err != nil {
		return err
	}
	for _, i := range res.Imports {
		if !i.Allowed {
			return api.Errorf(api.PermissionDenied, "line %d imports %q, which is not in allowed_imports", i.Line, i.Module).
				WithOp(api.MethodCodeRun).WithField("allowed_imports").WithHint("nothing has run; add the module to allowed_imports, or leave the import out")
		}
	}
	for i := range res.Findings {
		switch f := &res.Findings[i]; f.Rule {
		case api.RuleUnreadable, "text.depth":
			return api.Errorf(api.PermissionDenied, "what the code imports can not be told: %s", f.Why).
				WithOp(api.MethodCodeRun).WithField("code").WithHint("nothing has run; make the code simpler, or run it without allowed_imports")
		}
	}
	return nil
}
