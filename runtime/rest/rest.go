// Package rest serves hutch over HTTP: sandboxes, their processes, files, ports, snapshots and events, in JSON, with
// streams of server-sent events. It is a client of hutchd's and keeps nothing of its own: what it answers is what the
// daemon says at that moment, and whoever kills it has lost the requests that were under way and no more.
//
// Each request passes, in this order: the Host and Origin that it names (guard), the token or the user of a Unix socket
// (authorized), which say whose it is (clients.go), whose the sandbox or snapshot is that it names (owned), and then
// the handler of its route. What comes and goes is bounded in size and time (patient, slowReader). The table of routes
// is the whole of it (routes.go), and openapi.json is made of that.
//
// A client of this package has less than the user who runs it: it sees what was made over REST, names no folder of the
// host, and reaches no port of the host from a sandbox, unless Client.Grant says so.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/webapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Grant is a power of the user's that clients have only where it is granted.
type Grant string

// The grants.
const (
	// GrantHostPorts lets network policies name ports of the host's loopback: host:5432.
	GrantHostPorts Grant = webapi.GrantHostPorts
	// GrantSandboxes shows all of the user's sandboxes and snapshots, also those that were not made over REST: these
	// may have folders of the host. It lets clients use the user's volumes, too.
	GrantSandboxes Grant = webapi.GrantSandboxes
)

// Bounds of requests.
const (
	maxJSON          = 4 << 20   // bytes of a body that is JSON
	DefaultMaxUpload = 100 << 20 // bytes of a file that is uploaded
	maxHeader        = 64 << 10
	// maxStreams bounds the requests at once of one connection of HTTP/2. Go's server ends one that resets streams
	// faster than their handlers end, once four times as many wait.
	maxStreams = 100
)

// Config is what a Server is to be.
type Config struct {
	// Clients are those who have a token, as they are at the moment. On a Unix socket it is one, and the kernel says
	// who connects.
	Clients func() []*Client
	// Hosts are what Host may be beside localhost and addresses of the loopback, without ports.
	Hosts []string
	Unix  bool // it is served on a Unix socket
	// Registries are those that clients may have images fetched from, beside Docker Hub.
	Registries []string
	MaxUpload  int64 // bytes; 0 is DefaultMaxUpload
	// Connect connects to the daemon. It is called again when a connection is lost.
	Connect func(ctx context.Context) (*client.Client, error)
	Log     *slog.Logger
}

// Server answers requests. Its methods may be called from any goroutine.
type Server struct {
	cfg    Config
	routes []route
	news   *news // events, for all who follow them

	calls, waits connection
	openAPI      func() (object, error)

	keys keys // creations under way, by Idempotency-Key
	mine mine
	room room
}

// New makes a server.
func New(cfg Config) *Server {
	if cfg.MaxUpload == 0 {
		cfg.MaxUpload = DefaultMaxUpload
	}
	for i, host := range cfg.Hosts {
		cfg.Hosts[i] = strings.ToLower(host)
	}
	s := &Server{cfg: cfg, routes: table()}
	s.news = newNews(s.client)
	s.openAPI = sync.OnceValues(func() (object, error) { return describe(s.routes) })
	return s
}

// HTTP returns a server for a listener, with bounds for those who are slow.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: patience,
		MaxHeaderBytes: maxHeader, ConnContext: withPeer, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
}

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{} // of each path
	for i := range s.routes {
		r := &s.routes[i]
		methods[r.path] = append(methods[r.path], r.method)
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.serve(r, w, req) }))
		if !r.public {
			h = s.authorized(h)
		}
		mux.Handle(r.method+" "+r.path, h)
	}
	for path, list := range methods {
		mux.Handle(path, s.authorized(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			notAllowed(w, req, list)
		})))
	}
	mux.Handle("/", s.authorized(http.HandlerFunc(noRoute)))
	return patient(s.guarded(mux))
}

// serve answers one request of a route.
func (s *Server) serve(r *route, w http.ResponseWriter, req *http.Request) {
	if err := r.checkQuery(req); err != nil {
		s.fail(w, req, err)
		return
	}
	if err := s.owned(req); err != nil {
		s.fail(w, req, err)
		return
	}
	answer, err := r.serve(s, w, req)
	switch {
	case err != nil:
		s.fail(w, req, err)
	case answer != nil:
		s.reply(w, req, r.status(), answer)
	case r.answer == nil && r.media == nil: // others have answered themselves
		w.WriteHeader(r.status())
	}
}

// connection is one to the daemon, made anew where it was lost. A connection has so many calls under way and no more.
// So those that wait for something in a sandbox have one of their own, and never keep others from looking, or from
// ending what they wait for.
type connection struct {
	mu sync.Mutex // guards c, also while it is made: the second request waits for it
	c  *client.Client
}

func (n *connection) client(ctx context.Context, connect func(context.Context) (*client.Client, error)) (*client.Client,
	error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c != nil {
		select {
		case <-n.c.Done():
			_ = n.c.Close() // lost already
			n.c = nil
		default:
			return n.c, nil
		}
	}
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	n.c = c
	return c, nil
}

func (n *connection) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		return nil
	}
	return n.c.Close()
}

// client is the connection of calls that do not wait.
func (s *Server) client(ctx context.Context) (*client.Client, error) {
	return s.calls.client(ctx, s.cfg.Connect)
}

// waiting are the methods that wait for what happens in a sandbox, or for a download.
var waiting = []string{api.CallSandboxCreate.Name, api.CallSandboxFork.Name, api.CallSandboxStart.Name,
	api.CallSandboxStop.Name, api.CallSnapRestore.Name, api.CallExecRun.Name, api.CallExecWait.Name,
	api.CallExecWrite.Name, api.CallCodeRun.Name}

// Close ends the connections to the daemon, and with them whatever waits for it.
func (s *Server) Close() error { return errors.Join(s.calls.close(), s.waits.close()) }

// do calls a method of the daemon's.
func do[P, R any](ctx context.Context, s *Server, m api.Call[P, R], p P, opts ...client.CallOption) (R, error) {
	conn := &s.calls
	if slices.Contains(waiting, m.Name) {
		conn = &s.waits
	}
	c, err := conn.client(ctx, s.cfg.Connect)
	if err != nil {
		var none R
		return none, err
	}
	return client.Do(ctx, c, m, p, opts...)
}

// reply writes an answer as JSON.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, status int, v any) {
	text, err := encode(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone, or hears of it
}

// body decodes a JSON body strictly. One that is missing is the empty object. It is JSON also where it is said to be a
// form, which is what curl -d says of anything: nothing is taken for a form here, and a page that could send one
// without being asked has no token.
func body(w http.ResponseWriter, r *http.Request, into any) error {
	if t := r.Header.Get("Content-Type"); t != "" && !isMedia(t, "application/json") &&
		!isMedia(t, "application/x-www-form-urlencoded") {
		return problem(http.StatusUnsupportedMediaType, string(api.InvalidArgument),
			"send JSON, with Content-Type: application/json", "the body is %q, and not application/json", t)
	}
	data, err := readAll(w, r, maxJSON)
	if err != nil {
		return err
	}
	if holdsNull(data) {
		return api.Errorf(api.InvalidArgument, "the body holds null, which is no value").
			WithHint("leave out what has none")
	}
	return params.Decode(data, into)
}

// holdsNull reports whether there is a null in JSON, which Go would take for a member that is not there.
func holdsNull(data []byte) bool {
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		t, err := dec.Token()
		if err != nil {
			return false // it ends, or is no JSON: who decodes it says so
		}
		if t == nil {
			return true
		}
	}
}

// ref is the id or name of the sandbox in the path of a request.
func ref(r *http.Request) string { return r.PathValue("sandbox") }

// find returns the sandbox of a request.
func (s *Server) find(r *http.Request) (api.Sandbox, error) {
	return do(r.Context(), s, api.CallSandboxGet, api.SandboxParams{Sandbox: ref(r)})
}

// checkSeconds refuses a number of seconds that a query or body has, where it is not possible.
func checkSeconds(field string, v *float64) error {
	if v == nil || *v >= 0 && *v <= api.MaxSeconds {
		return nil
	}
	return api.Errorf(api.InvalidArgument, "%s: %g is not possible", field, *v).WithField(field).
		WithHint("give seconds: 0 to %d", int64(api.MaxSeconds))
}
