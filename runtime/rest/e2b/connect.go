package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// What runs in a sandbox is spoken of by the Connect protocol. All SDKs have its messages as JSON, so the messages are
// Go types here (types.go), and binary ones are refused.

// maxMessage bounds a message, in bytes. Input comes in pieces.
const maxMessage = 4 << 20

// codec is JSON as protobuf has it, as far as our messages go: what is missing is the zero value, and members that
// nobody knows are passed over.
type codec struct{}

func (codec) Name() string { return "json" }

func (codec) Marshal(m any) ([]byte, error) { return json.Marshal(m) }

func (codec) Unmarshal(text []byte, into any) error {
	if len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, into)
}

var options = []connect.HandlerOption{connect.WithCodec(codec{}), connect.WithReadMaxBytes(maxMessage)}

// callKey is where a request's context has its call.
type callKey struct{}

// rpc serves a procedure, once it is known which sandbox is meant.
func rpc(h http.Handler, streams bool) boxHandler {
	return func(w http.ResponseWriter, r *http.Request, c *call) error {
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if kind != "application/json" && kind != "application/connect+json" {
			refuse(w, http.StatusUnsupportedMediaType, fmt.Sprintf("%.100q is not served: send JSON", kind))
			return nil
		}
		if !streams { // one that sends as things happen may be quiet for long
			r.Body = rest.SlowBody(w, r)
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
		return nil
	}
}

// unary is a procedure with one message each way.
func unary[Req, Res any](procedure string, f func(context.Context, *call, *Req) (*Res, error)) boxHandler {
	return rpc(connect.NewUnaryHandler(procedure,
		func(ctx context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
			res, err := f(ctx, callOf(ctx), r.Msg)
			if err != nil {
				return nil, connectError(err)
			}
			return connect.NewResponse(res), nil
		}, options...), false)
}

// stream is a procedure that answers with messages as things happen.
func stream[Req, Res any](procedure string, f func(context.Context, *call, *Req, func(*Res) error) error) boxHandler {
	return rpc(connect.NewServerStreamHandler(procedure,
		func(ctx context.Context, r *connect.Request[Req], out *connect.ServerStream[Res]) error {
			c := callOf(ctx)
			// The server reads on, to hear of a client that goes, and would take a late deadline for that.
			_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
			return connectError(f(ctx, c, r.Msg, out.Send))
		}, options...), false)
}

// input is a procedure that is sent messages as things happen.
func input[Req, Res any](procedure string,
	f func(context.Context, *call, func() (*Req, error)) (*Res, error)) boxHandler {
	return rpc(connect.NewClientStreamHandler(procedure,
		func(ctx context.Context, in *connect.ClientStream[Req]) (*connect.Response[Res], error) {
			res, err := f(ctx, callOf(ctx), func() (*Req, error) {
				if !in.Receive() {
					return nil, in.Err()
				}
				return in.Msg(), nil
			})
			if err != nil {
				return nil, connectError(err)
			}
			return connect.NewResponse(res), nil
		}, options...), true)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call) // rpc has put it there
	return c
}

// codes are what errors of the daemon's are in the protocol.
var codes = map[string]connect.Code{
	string(api.NotFound): connect.CodeNotFound, string(api.AlreadyExists): connect.CodeAlreadyExists,
	string(api.InvalidArgument):    connect.CodeInvalidArgument,
	string(api.FailedPrecondition): connect.CodeFailedPrecondition,
	string(api.PermissionDenied):   connect.CodePermissionDenied,
	string(api.ResourceExhausted):  connect.CodeResourceExhausted,
	string(api.DeadlineExceeded):   connect.CodeDeadlineExceeded,
	string(api.Unavailable):        connect.CodeUnavailable, string(api.Unimplemented): connect.CodeUnimplemented,
	string(api.Canceled): connect.CodeCanceled,
}

func connectError(err error) error {
	var own *connect.Error
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the timeout of the request is over"))
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	p := rest.ProblemOf(err)
	code, ok := codes[p.Code]
	if !ok {
		code = connect.CodeInternal
	}
	return connect.NewError(code, errors.New(messageOf(&p)))
}
