package rest

import (
	"context"
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/peer"
	"github.com/hutch-sh/hutch/runtime/api"
)

// guarded refuses requests that a page of somebody else's may have made its browser send: those for a name that is not
// the server's (DNS rebinding), and those that name another origin. There is no CORS: no page but the server's own may
// use it.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		h.Set("Referrer-Policy", "no-referrer")
		if !s.isOurs(hostOf(r.Host)) {
			problem(http.StatusForbidden, string(api.PermissionDenied),
				"use localhost or the address that it listens on, or start hutch web with --host NAME",
				"the host %q is not this server's", r.Host).write(w)
			return
		}
		if origin := strings.Join(r.Header.Values("Origin"), " "); origin != "" && !sameOrigin(origin, r) {
			problem(http.StatusForbidden, string(api.PermissionDenied),
				"call it from a program, or from a page of its own", "pages of %q may not use this server", origin).
				write(w)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			problem(http.StatusForbidden, string(api.PermissionDenied),
				"call it from a program, or from a page of its own", "pages of other sites may not use this server").
				write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is a Host without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func (s *Server) isOurs(host string) bool {
	if host == "localhost" || slices.Contains(s.cfg.Hosts, host) {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return err == nil && u.Scheme == scheme && strings.EqualFold(u.Host, r.Host)
}

// peerKey is where a request's context says that its Unix socket is the user's own process'.
type peerKey struct{}

// withPeer notes who connects to a Unix socket, as the kernel says.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if limited, ok := c.(*limitedConn); ok {
		c = limited.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	_ = raw.Control(func(fd uintptr) {
		if _, err := peer.Owner(int(fd)); err == nil {
			ctx = context.WithValue(ctx, peerKey{}, true)
		}
	})
	return ctx
}

// authorized lets those in who know the token, or are the user.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.ofRequest(r)
		if c == nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="hutch"`)
			problem(http.StatusUnauthorized, codeUnauthenticated,
				"send Authorization: Bearer TOKEN; hutch web says where its token is",
				"the request has no valid token").
				write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(As(r.Context(), c)))
	})
}

// isMedia reports whether a Content-Type is of a media type.
func isMedia(contentType, want string) bool {
	got, _, err := mime.ParseMediaType(contentType)
	return err == nil && got == want
}

// patience is how long a client may take to send, or to take, the next piece of a body.
const patience = 30 * time.Second

// slowReader ends a body of which nothing comes for too long.
type slowReader struct {
	r  *http.Request
	rc *http.ResponseController
}

func (s slowReader) Read(p []byte) (int, error) {
	if err := s.rc.SetReadDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := s.r.Body.Read(p)
	if err != nil {
		// The server reads on, to hear of a client that goes, and would take a late deadline for that.
		_ = s.rc.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = problem(http.StatusRequestTimeout, string(api.DeadlineExceeded), "send it faster",
			"nothing of the body came for %s", patience)
	}
	return n, err
}

// patient ends requests whose bodies do not come, and answers that are not read, for too long. The server itself has no
// bounds of that kind, and so does not take those of one request off its connection before the next.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Time{})
		next.ServeHTTP(patientWriter{w, rc}, r)
		if r.ContentLength != 0 { // what nobody has read of a body the server reads now
			_ = rc.SetReadDeadline(time.Now().Add(patience / 6))
		}
	})
}

// patientWriter puts off the end of its client's time with each write.
type patientWriter struct {
	http.ResponseWriter
	rc *http.ResponseController
}

func (p patientWriter) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// WriteHeader is all that there is of an answer without a body.
func (p patientWriter) WriteHeader(status int) {
	_ = p.rc.SetWriteDeadline(time.Now().Add(patience))
	p.ResponseWriter.WriteHeader(status)
}

// Flush is for those who look for an http.Flusher.
func (p patientWriter) Flush() { _ = p.rc.Flush() }

// Unwrap is for http.ResponseController.
func (p patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
