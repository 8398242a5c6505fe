package sandbox

import (
	"context"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/runtime/api"
)

// explainLaunch asks the doctor why a sandbox could not be launched, when the error
// does not say it: an outer container that masks parts of /proc, for one, keeps the
// kernel from mounting another. The host's /proc is never used instead: it shows what
// is outside.
func explainLaunch(ctx context.Context, err error) error {
	if api.ErrorCode(err) != api.Internal {
		return err
	}
	c := probe.Proc(context.WithoutCancel(ctx))
	if c.Status != probe.No {
		return err
	}
	return api.Errorf(api.Unavailable, "%s: %w", c.Detail, err).WithHint("%s", c.Remedy)
}
