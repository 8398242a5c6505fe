package server

import (
	"context"
	"errors"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// rpcError is the one place where errors become JSON-RPC errors. Every one has a
// hint; cause is the context's (context.Cause) when a call was cancelled.
func rpcError(err, cause error) *jsonrpc.Error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return wire
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = classify(err, cause)
	}
	hint := e.Hint
	if hint == "" {
		hint = defaultHints[e.Code]
	}
	if hint == "" {
		hint = defaultHints[api.Internal]
	}
	return &jsonrpc.Error{
		Code:    e.Code.Number(),
		Message: err.Error(),
		Data:    api.ErrorData{Code: e.Code, Op: e.Op, Field: e.Field, Hint: hint, Failed: e.Failed, Owner: e.Owner},
	}
}

// classify gives errors a code that did not come with one.
func classify(err, cause error) *api.Error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{Code: api.DeadlineExceeded}
	case errors.Is(err, context.Canceled),
		errors.Is(err, jsonrpc.ErrCanceled), errors.Is(err, jsonrpc.ErrConnectionLost):
		if errors.Is(cause, ErrShutdown) {
			return &api.Error{Code: api.Unavailable, Hint: "The daemon is ending; call again to start another."}
		}
		return &api.Error{Code: api.Canceled}
	}
	return &api.Error{Code: api.Internal}
}

// defaultHints is what to do about errors whose origin gave no advice.
var defaultHints = map[api.Code]string{
	api.NotFound:           "List what there is with sandbox.list or image.list.",
	api.AlreadyExists:      "Choose another name, or remove the existing one.",
	api.InvalidArgument:    "See rpc.discover for what the method takes.",
	api.FailedPrecondition: "Look at the record (sandbox.get) and at `hutch doctor`.",
	api.PermissionDenied:   "Run `hutch doctor` to see what this machine allows.",
	api.ResourceExhausted:  "Remove sandboxes or images that are not needed, or raise the limit.",
	api.DeadlineExceeded:   "Call again, with more time if it can be given.",
	api.Unavailable:        "Run `hutch doctor` to see what this machine offers.",
	api.Unimplemented:      "See rpc.discover for what this build can do.",
	api.Canceled:           "The call was cancelled; call again if that was not meant.",
	api.Internal:           "This is a bug in hutch: please report it with the daemon's log (system.info says where it is).",
}
