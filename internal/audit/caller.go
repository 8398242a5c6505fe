package audit

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

type callerKey struct{}

// WithCaller says whose calls a context is of.
func WithCaller(ctx context.Context, c *api.AuditCaller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Caller is who WithCaller has said; nil for what the daemon does of its own accord.
func Caller(ctx context.Context) *api.AuditCaller {
	c, _ := ctx.Value(callerKey{}).(*api.AuditCaller)
	return c
}
