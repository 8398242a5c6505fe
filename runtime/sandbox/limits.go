package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// timeoutOf is the wall time that an exec may take, 0 for no end.
func (m *Manager) timeoutOf(s *Sandbox, p *api.ExecParams) (time.Duration, error) {
	switch t := p.TimeoutS; {
	case t != nil && *t > m.cfg.Exec.MaxTimeoutS && !p.Unbounded():
		return 0, m.tooLong("timeout_s", *t)
	case t != nil:
		return seconds(*t), nil
	case s.spec.Limits.TimeoutS > 0:
		return seconds(s.spec.Limits.TimeoutS), nil
	case p.Unbounded():
		return 0, nil
	}
	return seconds(m.cfg.Exec.TimeoutS), nil
}

func (m *Manager) tooLong(field string, asked float64) error {
	return api.Errorf(api.InvalidArgument, "%s: %g seconds are more than a command may take here", field, asked).WithField(field).
		WithHint("ask for at most %g seconds, start it in the background, or raise exec.max_timeout_s in the daemon's configuration file",
			m.cfg.Exec.MaxTimeoutS)
}

// withTimeout is ctx with the exec's timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errTimeout)
}
