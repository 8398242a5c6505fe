package rest

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// route is a path and a method, and all that openapi.json says of them.
type route struct {
	method, path string
	name         string // operationId, unique
	tag          string
	summary      string
	notes        string
	query        []parameter
	headers      []parameter
	body         reflect.Type   // of JSON; nil is none
	bodies       []string       // other media types that the body may have
	answer       reflect.Type   // of JSON; nil is none
	code         int            // of success; 0 is 200, or 204 without an answer
	also         map[int]string // other statuses, and what they mean
	media        []string       // other media types of the answer
	public       bool           // without a token
	paged        bool           // it is a list, and may go on
	// serve answers: a value is written as JSON with the status; nil says that it has answered itself, or with no body.
	serve func(s *Server, w http.ResponseWriter, r *http.Request) (any, error)
}

// parameter is one of the query, or a header.
type parameter struct {
	name, doc, kind string // kind is a type of JSON Schema
	required        bool
	least, most     int64 // of a number; without most it is one of seconds
	pattern         string
}

func (r *route) status() int {
	switch {
	case r.code != 0:
		return r.code
	case r.answer == nil:
		return http.StatusNoContent
	}
	return http.StatusOK
}

// queries are what the query may have.
func (r *route) queries() []parameter {
	if r.paged {
		return slices.Concat(r.query, pageQuery)
	}
	return r.query
}

// checkQuery refuses what the query of a route does not have: a filter with a typing error would find everything.
func (r *route) checkQuery(req *http.Request) error {
	names := make([]string, 0, len(r.query))
	for _, p := range r.queries() {
		names = append(names, p.name)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return api.Errorf(api.InvalidArgument, "the query: %w", err).WithHint("escape it as a query")
	}
	for name := range query {
		if !slices.Contains(names, name) {
			e := api.Errorf(api.InvalidArgument, "the query has no %q", name).WithField(name).
				WithHint("it takes nothing")
			if len(names) > 0 {
				e = e.WithHint("it takes: %s", strings.Join(names, ", "))
			}
			return e
		}
	}
	return nil
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// asked is a handler that decodes a body.
func asked[B any](f func(s *Server, r *http.Request, b *B) (any, error)) func(*Server, http.ResponseWriter,
	*http.Request) (any, error) {
	return func(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
		var b B
		if err := body(w, r, &b); err != nil {
			return nil, err
		}
		return f(s, r, &b)
	}
}

// plain is a handler without a body.
func plain(f func(s *Server, r *http.Request) (any, error)) func(*Server, http.ResponseWriter, *http.Request) (any,
	error) {
	return func(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) { return f(s, r) }
}

const (
	oneSandbox = "/sandboxes/{sandbox}"
	oneProcess = oneSandbox + "/processes/{process}"
	files      = oneSandbox + "/files"
	octets     = "application/octet-stream"
	sse        = "text/event-stream"
)

var (
	pathQuery = parameter{name: "path", kind: "string", required: true,
		doc: "in the sandbox; a relative one starts at its workdir"}
	userQuery   = parameter{name: "user", kind: "string", doc: "whose rights are used; default the sandbox's user"}
	lastEventID = parameter{name: "Last-Event-ID", kind: "string", doc: "go on after this event of a stream"}
	idempotency = parameter{name: "Idempotency-Key", kind: "string",
		doc: "1 to 255 characters; a second request with the same key and body gets the sandbox of the first"}
)

// table is all paths.
func table() []route {
	return slices.Concat(systemRoutes(), sandboxRoutes(), processRoutes(), fileRoutes(), moreRoutes())
}
