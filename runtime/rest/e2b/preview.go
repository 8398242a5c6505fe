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

	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// A server in a sandbox is reached under a name of its own, PORT-ID.DOMAIN, as getHost makes it: so that a browser
// takes it for an origin of its own, which shares nothing with this server or another sandbox. Requests have the
// sandbox's token for traffic, unless its creator allows anyone's.

const (
	trafficCookie = "e2b_traffic"
	trafficQuery  = "e2b_traffic_access_token"
)

// previewOf is the sandbox and port that a Host names.
func previewOf(host, domain string) (id string, port int, ok bool) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	name, ok := strings.CutSuffix(strings.ToLower(host), "."+domain)
	number, id, cut := strings.Cut(name, "-")
	port, err := strconv.Atoi(number)
	return id, port, ok && cut && err == nil && port > 0 && port <= 65535 && id != ""
}

// withPreviews serves the names of sandboxes, and all others by next.
func (s *Server) withPreviews(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, port, ok := previewOf(r.Host, s.cfg.Domain)
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
	by := s.holder(r.Header.Get(trafficHeader), id, forTraffic)
	if cookie, err := r.Cookie(trafficCookie); err == nil && by == nil {
		by = s.holder(cookie.Value, id, forTraffic)
	}
	if q := r.URL.Query(); q.Has(trafficQuery) {
		token := q.Get(trafficQuery)
		right := s.holder(token, id, forTraffic) != nil
		q.Del(trafficQuery) // the sandbox does not get it
		r.URL.RawQuery = q.Encode()
		if by == nil && right {
			http.SetCookie(w, &http.Cookie{Name: trafficCookie, Value: token, Path: "/", HttpOnly: true,
				Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
			// A path that begins with two slashes would be another host.
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
			return nil
		}
	}
	if by == nil {
		by = s.public(r.Context(), id)
	}
	if by == nil { // nor is it said which sandboxes there are, or one woken
		refuse(w, http.StatusUnauthorized, "the request has no "+trafficHeader+": sandbox.traffic_access_token; "+
			"browsers have it by ?"+trafficQuery+"= once, and nobody needs it with allowPublicTraffic: true")
		return nil
	}
	r = r.WithContext(rest.As(r.Context(), by))
	if _, err := s.reached(r.Context(), id, r); err != nil {
		return err
	}
	if _, key, _ := strings.Cut(r.Header.Get("Authorization"), " "); s.rest.Known(bare(key)) != nil {
		r.Header.Del("Authorization") // anything else there is the sandbox's own
	}
	return s.previews.serve(w, r, s, id, port)
}

// public is the client of a sandbox whose servers strangers may use; nil of any other.
func (s *Server) public(ctx context.Context, id string) *rest.Client {
	sb, err := s.rest.Sandbox(rest.AsServer(ctx), id)
	if err != nil || sb.ID != id || rest.Own(&sb, labelPublic) == "" {
		return nil
	}
	return s.rest.Owner(&sb)
}

// previews are the ports that have been asked for, each by a socket that only this user may connect to.
type previews struct {
	log *slog.Logger
	dir string

	mu  sync.Mutex // never held over a call
	all map[previewKey]*preview
	// order is that in which they were asked for first.
	order []previewKey
}

type previewKey struct {
	id   string
	port int
}

// preview is the way to one port.
type preview struct {
	mu    sync.Mutex // while it is opened: the second request for it waits, and no other does
	proxy *httputil.ReverseProxy
}

func (p *previews) path(key previewKey) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s-%d", key.id, key.port))
}

// serve sends a request to a port. What a stop of the sandbox has closed is opened again.
func (p *previews) serve(w http.ResponseWriter, r *http.Request, s *Server, id string, port int) error {
	key := previewKey{id, port}
	one, evicted := p.get(key)
	for _, old := range evicted {
		p.expel(r.Context(), s, old)
	}
	if err := p.open(r.Context(), s, key, one); err != nil {
		return err
	}
	one.proxy.ServeHTTP(w, r)
	return nil
}

// open has hutchd listen for a port, where it does not.
func (p *previews) open(ctx context.Context, s *Server, key previewKey, one *preview) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	path := p.path(key)
	if there, err := net.Dial("unix", path); err == nil {
		return there.Close()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := listen.On(api.PortAddress{Path: path}) // hutchd need not be able to
	if err != nil {
		return err
	}
	defer f.Close()
	first := 0
	_, err = rest.Do(ctx, s.rest, api.CallPortExpose, api.PortExposeParams{Sandbox: key.id, Port: key.port,
		Address: path, Listener: &first, FDs: 1}, client.WithFDs(f))
	return err
}

// maxPreviews bounds the ports of one sandbox, of which hutchd has 64: strangers may ask for any number of a public
// one. The one that was asked for first makes room for the next.
const maxPreviews = 16

// get finds the way to a port, or makes one. Those that have to make room for it are closed by the caller.
func (p *previews) get(key previewKey) (one *preview, evicted []previewKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.all[key]; ok {
		return one, nil
	}
	if p.all == nil {
		p.all = map[previewKey]*preview{}
	}
	one = &preview{proxy: p.proxy(key, p.path(key))}
	p.all[key] = one
	p.order = append(p.order, key)
	var own []previewKey
	for _, k := range p.order {
		if k.id == key.id {
			own = append(own, k)
		}
	}
	evicted = own[:max(0, len(own)-maxPreviews)]
	p.order = slices.DeleteFunc(p.order, func(k previewKey) bool { return slices.Contains(evicted, k) })
	for _, k := range evicted {
		delete(p.all, k)
	}
	return one, evicted
}

// expel has hutchd listen for a port no more.
func (p *previews) expel(ctx context.Context, s *Server, key previewKey) {
	_, _ = rest.Do(ctx, s.rest, api.CallPortClose, api.PortCloseParams{Sandbox: key.id, Port: key.port,
		Address: p.path(key)}) // a stop may have closed it, or the sandbox be gone
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
func (p *previews) close(s *Server) {
	p.mu.Lock()
	keys := slices.Clone(p.order)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), lastCalls)
	defer cancel()
	for _, key := range keys {
		p.expel(ctx, s, key)
	}
}
