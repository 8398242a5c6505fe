package monitor

import (
	"context"
	"errors"
	"os"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/runtime/api"
)

// explain asks the doctor why the daemon could not be started, when the error
// does not say it: the answer is nearly always that this machine gives no user
// namespace.
func explain(ctx context.Context, err error) error {
	var known *api.Error
	if errors.As(err, &known) && known.Code != api.Internal && known.Code != api.Unavailable {
		return err
	}
	c := probe.UserNamespaces(context.WithoutCancel(ctx))
	if c.Status != probe.No {
		return err
	}
	return api.Errorf(api.Unavailable, "%s: %w", c.Detail, err).WithOp("start the daemon").WithHint("%s", c.Remedy)
}

// probe runs the doctor's probes here, in the caller's own namespaces.
func (m *monitor) probe(ctx context.Context, h *hutchd) []api.Check {
	found := append(probe.All(ctx, probe.Options{StateFolder: m.opts.Paths.State}), probe.Daemon(h.pid, os.Getpid()))
	checks := make([]api.Check, 0, len(found))
	for _, c := range found {
		checks = append(checks, api.Check{
			Name: c.Name, Status: string(c.Status), Detail: c.Detail, Remedy: c.Remedy, Required: c.Required,
		})
	}
	return checks
}
