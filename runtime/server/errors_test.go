package server

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestErrorMapping(t *testing.T) {
	wrapped := errors.Join(errors.New("undo"), api.Errorf(api.NotFound, "x").WithOp("get").WithHint("h").WithField("f"))
	tests := []struct {
		err, cause error
		want       api.Code
		hint       string
	}{
		{wrapped, nil, api.NotFound, "h"},
		{api.Errorf(api.Unavailable, "x"), nil, api.Unavailable, ""},
		{context.Canceled, jsonrpc.ErrCanceled, api.Canceled, ""},
		{context.Canceled, ErrShutdown, api.Unavailable, ""},
		{context.DeadlineExceeded, nil, api.DeadlineExceeded, ""},
		{io.ErrUnexpectedEOF, nil, api.Internal, ""},
		{&api.Error{Code: "strange"}, nil, "strange", ""},
	}
	for _, tt := range tests {
		e := rpcError(tt.err, tt.cause)
		if e.Code != tt.want.Number() || e.Data.Code != tt.want || e.Data.Hint == "" ||
			(tt.hint != "" && e.Data.Hint != tt.hint) {
			t.Errorf("%v: %+v, want %s", tt.err, e, tt.want)
		}
	}
	for _, c := range api.Codes() {
		if defaultHints[c] == "" {
			t.Errorf("no default hint for %s", c)
		}
	}
}
