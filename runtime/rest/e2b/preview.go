package e2b

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// A server in a sandbox is reached under a name of its own, PORT-ID.localhost, as getHost makes it: so that a browser
// takes it for an origin of its own, which shares nothing with this server or another sandbox. Requests have the
// sandbox's token for traffic, unless its creator allows anyone's.

const (
	trafficCookie = "e2b_traffic"
	trafficQuery  = "e2b_traffic_access_token"
)

// previewOf is the sandbox and port that a Host names.
func previewOf(host string) (id string, port int, ok bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	name, ok := strings.CutSuffix(strings.ToLower(host), ".localhost")
	number, id, cut := strings.Cut(name, "-")
	port, err := strconv.Atoi(number)
	return id, port, ok && cut && err == nil && port > 0 && port <= 65535 && id != ""
}

// withPreviews serves the names of sandboxes, and all others by next.
func (s *Server) withPreviews(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, port, ok := previewOf(r.Host)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.preview(w, r, id, port); err != nil {
			s.boxFail(w, r, id, err)
		}
	})
}

func (s *Server) preview(w http.ResponseWriter, r *http.Request, id string, port int) error {
	token := s.tokenOf(id, forTraffic)
	cookie, err := r.Cookie(trafficCookie)
	has := same(r.Header.Get(trafficHeader), token) || err == nil && same(cookie.Value, token)
	if q := r.URL.Query(); q.Has(trafficQuery) {
		right := same(q.Get(trafficQuery), token)
		q.Del(trafficQuery) // the sandbox does not get it
		r.URL.RawQuery = q.Encode()
		if !has && right {
			http.SetCookie(w, &http.Cookie{Name: trafficCookie, Value: token, Path: "/", HttpOnly: true,
				SameSite: http.SameSiteLaxMode})
			// A path that begins with two slashes would be another host.
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
			return nil
		}
	}
	if !has && !s.public(r.Context(), id) { // nor is it said which sandboxes there are, or one woken
		refuse(w, http.StatusUnauthorized, "the request has no "+trafficHeader+": sandbox.traffic_access_token; "+
			"browsers have it by ?"+trafficQuery+"= once, and nobody needs it with allowPublicTraffic: true")
		return nil
	}
	if _, err := s.reached(r.Context(), id, r); err != nil {
		return err
	}
	if _, key, _ := strings.Cut(r.Header.Get("Authorization"), " "); same(bare(key), s.cfg.Token) {
		r.Header.Del("Authorization") // anything else there is the sandbox's own
	}
	return s.previews.serve(w, r, s, id, port)
}

// public reports whether strangers may use the servers of a sandbox.
func (s *Server) public(ctx context.Context, id string) bool {
	sb, err := s.rest.Sandbox(ctx, id)
	return err == nil && sb.ID == id && rest.Own(&sb, labelPublic) != ""
}

// previews are the ports that have been asked for, each by a socket that only this user may connect to.
type previews struct {
	log *slog.Logger
	dir string

	mu  sync.Mutex // also while a port is exposed: the second request waits for it
	all map[previewKey]*httputil.ReverseProxy
	// order is that in which they were opened.
	order []previewKey
}

type previewKey struct {
	id   string
	port int
}

func (p *previews) path(key previewKey) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s-%d", key.id, key.port))
}

// serve sends a request to a port. What a stop of the sandbox has closed is opened again.
func (p *previews) serve(w http.ResponseWriter, r *http.Request, s *Server, id string, port int) error {
	proxy, err := p.open(r.Context(), s, previewKey{id, port})
	if err != nil {
		return err
	}
	proxy.ServeHTTP(w, r)
	return nil
}

// open has hutchd listen for a port, where it does not.
func (p *previews) open(ctx context.Context, s *Server, key previewKey) (*httputil.ReverseProxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	path := p.path(key)
	if there, err := net.Dial("unix", path); err == nil {
		_ = there.Close()
		return p.all[key], nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := listen.On(api.PortAddress{Path: path}) // hutchd need not be able to
	if err != nil {
		return nil, err
	}
	defer f.Close()
	first := 0
	_, err = rest.Do(ctx, s.rest, api.CallPortExpose, api.PortExposeParams{Sandbox: key.id, Port: key.port,
		Address: path, Listener: &first, FDs: 1}, client.WithFDs(f))
	if err != nil {
		return nil, err
	}
	if p.all == nil {
		p.all = map[previewKey]*httputil.ReverseProxy{}
	}
	p.all[key] = p.proxy(key, path)
	p.order = append(slices.DeleteFunc(p.order, func(k previewKey) bool { return k == key }), key)
	p.evict(ctx, s, key.id)
	return p.all[key], nil
}

// maxPreviews bounds the ports of one sandbox, of which hutchd has 64: strangers may ask for any number of a public
// one. The one that was opened first makes room for the next.
const maxPreviews = 16

func (p *previews) evict(ctx context.Context, s *Server, id string) {
	var own []previewKey
	for _, key := range p.order {
		if key.id == id {
			own = append(own, key)
		}
	}
	for _, key := range own[:max(0, len(own)-maxPreviews)] {
		_, _ = rest.Do(ctx, s.rest, api.CallPortClose, api.PortCloseParams{Sandbox: id, Port: key.port,
			Address: p.path(key)}) // a stop may have closed it
		delete(p.all, key)
		p.order = slices.DeleteFunc(p.order, func(k previewKey) bool { return k == key })
	}
}

func (p *previews) proxy(key previewKey, path string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", r.In.Host, r.In.Host
			secretless(r.Out)
		},
		Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			}},
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			reply(w, http.StatusBadGateway, map[string]any{"sandboxId": key.id, "port": key.port,
				"code": http.StatusBadGateway, "message": "The sandbox is running but port is not open"})
		},
	}
}

// secretless takes from a request what only this server may know.
func secretless(r *http.Request) {
	for _, name := range []string{trafficHeader, accessHeader, sandboxHeader, "E2b-Sandbox-Port", "X-API-KEY"} {
		r.Header.Del(name)
	}
	cookies := r.Cookies()
	r.Header.Del("Cookie")
	for _, c := range cookies {
		if c.Name != trafficCookie {
			r.AddCookie(c)
		}
	}
}

// close has hutchd listen no more.
func (p *previews) close(s *Server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lastCalls)
	defer cancel()
	for key := range p.all {
		_, _ = rest.Do(ctx, s.rest, api.CallPortClose, api.PortCloseParams{Sandbox: key.id, Port: key.port,
			Address: p.path(key)}) // of a sandbox that may be gone
	}
	if p.dir == "" {
		return nil
	}
	if err := os.RemoveAll(p.dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	return nil
}
