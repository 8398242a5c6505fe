package main

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code"
	"github.com/hutch-sh/hutch/runtime/scan"
	"github.com/hutch-sh/hutch/runtime/server"
)

// codeBackend runs pieces of code.
type codeBackend struct {
	r    *code.Runner
	scan *scan.Scanner
}

func (b codeBackend) RunCode(ctx context.Context, who server.Actor, p api.CodeParams,
	progress func(api.Progress)) (api.CodeResult, error) {
	return b.r.Run(ctx, code.Caller{User: who.UID, Conn: who.Conn, Progress: progress}, p)
}

func (b codeBackend) ScanCode(ctx context.Context, p api.ScanParams) (api.ScanResult, error) {
	return b.scan.Scan(ctx, p)
}

func (b codeBackend) CodeContexts(ref string) ([]api.CodeContext, error) { return b.r.Contexts(ref) }

func (b codeBackend) EndCodeContext(ctx context.Context, p api.CodeContextParams) error {
	return b.r.EndContext(ctx, p)
}
