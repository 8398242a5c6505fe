// Package e2b serves sandboxes in the shape of E2B's API, so that its published SDKs work against the user's own
// machine. It is a client of hutchd's, as package rest is, and made of that package's parts: a client of this shape may
// do what a client of the other one may.
//
// There are two kinds of requests. Those of the API (sandboxes.go, state.go) have the server's token as X-API-KEY.
// Those to a sandbox name it by E2b-Sandbox-Id and have a token of that sandbox alone, which is derived of the server's
// (tokens.go): its processes and files over the Connect protocol (process.go, filesystem.go), whole files (files.go),
// and code (code.go). Which features SDKs use depends on envdVersion.
package e2b

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// envdVersion is the version of E2B's daemon in the sandbox that this server can do as much as. From 0.6.2 on files
// have metadata, from 0.6.3 on events of watches the file's record, and 0.6.4 watches network mounts.
const envdVersion = "0.6.4"

// Config is what a Server is to be.
type Config struct {
	REST *rest.Server
	// Domain is what getHost makes names below, such as localhost, and Port that of the listener.
	Domain string
	Port   int
	// Folder is how the path of a folder begins that the server makes, for sockets to servers in sandboxes: the same
	// for all servers of one daemon, and no other's.
	Folder string
	Log    *slog.Logger
}

// lastCalls is how long calls may take that end what is under way.
const lastCalls = 5 * time.Second

// Server answers requests in E2B's shape. Its methods may be called from any goroutine.
type Server struct {
	cfg  Config
	rest *rest.Server

	signed   *rate.Limiter // of signatures that no sandbox has made
	watchers watchers
	contexts contexts
	previews previews
	folder   *folder
}

// New makes a server. What servers before it have left, which were killed, is ended.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, rest: cfg.REST, signed: rate.NewLimiter(1, 20)}
	var err error
	if s.folder, err = newFolder(cfg.Folder); err != nil {
		return nil, err
	}
	s.previews = previews{log: cfg.Log, dir: s.folder.Name()}
	s.endOthers(rest.AsServer(ctx))
	return s, nil
}

// Close ends what runs in sandboxes for clients that poll, and the ways to servers in them.
func (s *Server) Close() error {
	s.watchers.close()
	s.previews.close(s)
	return s.folder.remove()
}

// Handler answers all requests: those for names of sandboxes, and those that the guard lets pass.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	for pattern, h := range (control{s}).routes() {
		mux.Handle(pattern, s.withKey(h))
	}
	for _, routes := range []map[string]boxHandler{envd{s}.routes(), interpreter{s}.routes()} {
		for pattern, h := range routes {
			mux.Handle(pattern, s.inSandbox(pattern, h))
		}
	}
	mux.HandleFunc("GET /files", envd{s}.readFile)
	mux.HandleFunc("POST /files", envd{s}.writeFiles)
	for path, why := range absent {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusNotImplemented, why) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "no such path: docs/e2b.md says what of E2B's API is here")
	})
	return s.withPreviews(s.rest.Guarded(mux))
}

// absent are E2B's paths of what is not here, and what there is instead.
var absent = map[string]string{
	"/volumes":         noVolumes,
	"/volumes/":        noVolumes,
	"POST /templates":  noBuilds,
	"/v2/templates":    noBuilds,
	"/v3/templates":    noBuilds,
	"/v2/templates/":   noBuilds,
	"/v3/templates/":   noBuilds,
	"POST /templates/": noBuilds,
}

const (
	noVolumes = "volumes are not here: snapshots keep files, and `hutch run --volume NAME:/data` mounts a volume of hutch's"
	noBuilds  = "templates are not built by this API: `hutch template create` makes them (docs/templates.md)"
)

// handler answers a request of the API: with a value as JSON, or with no body.
type handler func(w http.ResponseWriter, r *http.Request) (status int, answer any, err error)

// withKey lets those call a handler who know the server's token.
func (s *Server) withKey(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.client(r)
		if c == nil {
			refuse(w, http.StatusUnauthorized,
				"invalid API key: E2B_API_KEY is e2b_ and the token of hutch web, which says where that is")
			return
		}
		r = r.WithContext(rest.As(r.Context(), c))
		status, answer, err := h(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		reply(w, status, answer)
	})
}

func reply(w http.ResponseWriter, status int, answer any) {
	if answer == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone, or hears of it
}

// problem is an error in E2B's shape.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	// HutchCode and HutchHint are what hutch says besides; SDKs pass over them.
	HutchCode string `json:"hutchCode,omitempty"`
	HutchHint string `json:"hutchHint,omitempty"`
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, problem{Code: status, Message: message})
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := rest.ProblemOf(err)
	if p.Code == string(api.Internal) && r.Context().Err() == nil {
		s.cfg.Log.Error("a request failed", "method", r.Method, "route", r.Pattern, "err", err)
	}
	p.SetRetryAfter(w.Header())
	reply(w, p.Status, problem{p.Status, messageOf(&p), p.Code, p.Hint})
}

// messageOf is all of an error that an SDK shows: it knows no hints.
func messageOf(p *rest.Problem) string {
	if p.Hint == "" {
		return p.Detail
	}
	return p.Detail + " (" + p.Hint + ")"
}

// decode reads a body that is JSON. SDKs may send members that nobody here knows.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	text, err := rest.ReadBody(w, r)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return api.Errorf(api.InvalidArgument, "the body: %w", err).WithHint("send JSON as the SDKs do")
	}
	return nil
}

// health says that the server answers, or that a sandbox does.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if named(r) == "" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.inSandbox("", func(w http.ResponseWriter, _ *http.Request, _ *call) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}).ServeHTTP(w, r)
}
