package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Problem is why a request failed (RFC 9457).
type Problem struct {
	Type   string `json:"type" doc:"urn:hutch:CODE"`
	Title  string `json:"title" doc:"the phrase of the status"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"what was tried, and why it failed"`
	Code   string `json:"code" doc:"the class of the error, as over JSON-RPC: not_found, invalid_argument, ..."`
	Hint   string `json:"hint,omitempty" doc:"what to do about it"`
	Field  string `json:"field,omitempty" doc:"the member of the request that is wrong, such as limits.cpus"`

	retryAfter int // seconds after which it may succeed, where that is known; -1: waiting does not help
}

// Codes that only HTTP has.
const (
	codeUnauthenticated = "unauthenticated"
	codeTooLarge        = "too_large"
	codeNotAllowed      = "method_not_allowed"
	codeConflict        = "precondition_failed"
)

// statuses are what codes are in HTTP.
var statuses = map[api.Code]int{
	api.NotFound: http.StatusNotFound, api.AlreadyExists: http.StatusConflict,
	api.InvalidArgument: http.StatusBadRequest, api.FailedPrecondition: http.StatusConflict,
	api.PermissionDenied: http.StatusForbidden, api.ResourceExhausted: http.StatusTooManyRequests,
	api.DeadlineExceeded: http.StatusGatewayTimeout, api.Unavailable: http.StatusServiceUnavailable,
	api.Unimplemented: http.StatusNotImplemented, api.Canceled: http.StatusServiceUnavailable,
	api.Internal: http.StatusInternalServerError,
}

// fail answers with a problem.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := ProblemOf(err)
	if p.Code == string(api.Internal) && !errors.Is(err, context.Canceled) { // of a client that is gone
		s.cfg.Log.Log(r.Context(), slog.LevelError, "a request failed", "method", r.Method, "route", r.Pattern,
			"err", err)
	}
	p.write(w)
}

// ProblemOf is an error as clients see it.
func ProblemOf(err error) Problem {
	var httpError *Problem
	var tooLarge *http.MaxBytesError
	var wire *jsonrpc.Error
	var e *api.Error
	switch {
	case errors.As(err, &httpError):
		return *httpError
	case errors.As(err, &tooLarge) && tooLarge.Limit == maxJSON:
		return *problem(http.StatusRequestEntityTooLarge, codeTooLarge, "PUT what is large into a file",
			"the body is larger than %d bytes, which is the most that JSON may have", tooLarge.Limit)
	case errors.As(err, &tooLarge):
		return *problem(http.StatusRequestEntityTooLarge, codeTooLarge,
			"send less, or start hutch web with --max-upload", "the body is larger than %d bytes", tooLarge.Limit)
	case errors.As(err, &e):
		p := problem(statuses[e.Code], string(e.Code), members.Replace(e.Hint), "%s", members.Replace(e.Error()))
		p.Field = members.Replace(e.Field)
		if p.Field == "template" {
			p.Field = "templateID"
		}
		return *p
	case errors.As(err, &wire): // parameters that this process has refused itself
		p := problem(http.StatusBadRequest, string(api.InvalidArgument), "", "%s", wire.Message)
		p.Hint, p.Field = members.Replace(wire.Data.Hint), wire.Data.Field
		return *p
	case errors.Is(err, client.ErrLost):
		return *problem(http.StatusServiceUnavailable, string(api.Unavailable), "try again", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return *problem(http.StatusGatewayTimeout, string(api.DeadlineExceeded), "try again", "%v", err)
	}
	return *problem(http.StatusInternalServerError, string(api.Internal), "hutch web's log may say more", "%v", err)
}

// members are what the daemon's parameters are called here, where that is another name.
var members = strings.NewReplacer("ttl_action", "onTimeout", "ttl_s", "timeout", "idle_s", "idle", "timeout_s",
	"timeout",
	"memory_bytes", "memoryMB", "disk_bytes", "diskMB", "allow_cidrs", "allowCIDRs", "block_cidrs", "blockCIDRs",
	"hutch ps lists the sandboxes", "GET /sandboxes lists them", "exec.kill ends it", "DELETE of the process ends it",
	"See rpc.discover for the type", "GET /openapi.json has the type", "exec.list", "GET .../processes",
	"read_only", "readOnly", "best_effort", "bestEffort", "output_bytes", "outputMax")

// problem makes one.
func problem(status int, code, hint, format string, args ...any) *Problem {
	return &Problem{Type: "urn:hutch:" + code, Title: http.StatusText(status), Status: status,
		Detail: fmt.Sprintf(format, args...), Code: code, Hint: hint}
}

func (p *Problem) Error() string { return p.Detail }

// SetRetryAfter says when it may succeed, where waiting helps: what is wrong with a member stays wrong.
func (p *Problem) SetRetryAfter(h http.Header) {
	if p.retryAfter >= 0 && (p.Status == http.StatusTooManyRequests ||
		p.Status == http.StatusServiceUnavailable && p.Field == "") {
		h.Set("Retry-After", strconv.Itoa(max(p.retryAfter, 1)))
	}
}

func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Del("ETag")
	h.Del("Content-Disposition")
	p.SetRetryAfter(h)
	if p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden {
		h.Set("Connection", "close") // whoever it is has no business here
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	writeJSON(w, p)
}

// notAllowed answers a request whose path has other methods.
func notAllowed(w http.ResponseWriter, r *http.Request, methods []string) {
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	problem(http.StatusMethodNotAllowed, codeNotAllowed, "use one of "+allow, "%s does not go with this path",
		r.Method).write(w)
}

func noRoute(w http.ResponseWriter, _ *http.Request) {
	problem(http.StatusNotFound, string(api.NotFound), "GET /openapi.json describes all paths", "no such path").write(w)
}
