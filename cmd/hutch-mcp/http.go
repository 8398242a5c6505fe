package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// maxSessions bounds the sessions at once: each may have sandboxes.
	maxSessions = 32
	// sessionTimeout ends a session whose client has gone without a word.
	sessionTimeout = 30 * time.Minute
)

// front serves sessions over HTTP, each with sandboxes of its own.
type front struct {
	cfg   mcpapi.Config
	token string

	mu      sync.Mutex // guards what follows
	closed  bool
	opening int // requests that may begin a session
	live    map[*mcp.ServerSession]*boxes
	wg      sync.WaitGroup // ends of sessions
}

// serveHTTP serves until ctx ends. The address is the loopback's, and each request has the token: any user of the
// machine, and any web page, can reach it.
func serveHTTP(ctx context.Context, cfg mcpapi.Config) error {
	host, _, err := net.SplitHostPort(cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http %s: %w", cfg.HTTP, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--http %s: only addresses of the loopback, such as 127.0.0.1:8000", cfg.HTTP)
	}
	f := &front{cfg: cfg, token: strings.ToLower(rand.Text()), live: map[*mcp.ServerSession]*boxes{}}
	if cfg.TokenFile != "" {
		if f.token, err = client.ReadToken(cfg.TokenFile); err != nil {
			return fmt.Errorf("--token-file: %w: chmod 600 makes it yours alone", err)
		}
		if len(f.token) < 16 {
			return fmt.Errorf("%s: a token has at least 16 characters", cfg.TokenFile)
		}
	}
	b := newBoxes(cfg)
	tools, err := b.tools(ctx)
	f.cfg = b.cfg
	if err = errors.Join(err, b.end(ctx)); err != nil {
		return err
	}
	one, err := newServer(&f.cfg, tools, f.of)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return err
	}
	sessions := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return one },
		&mcp.StreamableHTTPOptions{SessionTimeout: sessionTimeout}) // checks Host
	server := &http.Server{
		Handler:           f.authorized(http.NewCrossOriginProtection().Handler(f.bounded(exactHTTP(sessions)))),
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
	}
	fmt.Fprintf(os.Stderr, "hutch-mcp: listening on http://%s\n", l.Addr())
	if cfg.TokenFile == "" {
		fmt.Fprintf(os.Stderr, "hutch-mcp: Authorization: Bearer %s\n", f.token)
	}
	release, err := claim(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { _ = release() }()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = server.Serve(l)
	f.close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// claim keeps sandboxes from the port of a listener.
func claim(l net.Listener) (release func() error, err error) {
	places, err := paths.Resolve(os.Getenv, os.Geteuid())
	if err == nil {
		err = places.MakeDirs()
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if err != nil || !ok {
		return nil, err
	}
	return listen.Claim(places.Runtime, uint16(at.Port))
}

// authorized lets those in who know the token.
func (f *front) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The name of a scheme has no case (RFC 9110, 11.1).
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(strings.TrimLeft(token, " ")),
			[]byte(f.token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Authorization: Bearer and the token that hutch mcp was started with are needed",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bounded bounds the requests that may begin a session, and cancels what a session has under way when its client ends
// it: the SDK waits for that. Such a session ends also where the SDK does not like the request, as without what it has
// it is of no use.
func (f *front) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Mcp-Session-Id")
		switch {
		case id == "" && r.Method == http.MethodPost:
			if !f.open() {
				http.Error(w, "too many requests without a session at once", http.StatusServiceUnavailable)
				return
			}
			defer f.opened()
		case r.Method == http.MethodDelete:
			if session := f.finish(id); session != nil {
				defer session.Close()
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (f *front) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opening >= maxSessions {
		return false
	}
	f.opening++
	return true
}

func (f *front) opened() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opening--
}

// finish cancels what the session with this id has under way, and returns it; nil when there is none.
func (f *front) finish(id string) *mcp.ServerSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	for session, b := range f.live {
		if session.ID() == id {
			b.finish(errOver)
			return session
		}
	}
	return nil
}

// of returns what a session has, from its first message on. Every session is counted here and ends here, whatever its
// client says or leaves out.
func (f *front) of(s mcp.Session) (*boxes, error) {
	session, ok := s.(*mcp.ServerSession)
	if !ok {
		return nil, fmt.Errorf("%T is no session of a server", s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.live[session]; b != nil {
		return b, nil
	}
	if f.closed || len(f.live) >= maxSessions {
		return nil, fmt.Errorf("%d sessions are open, which is the most: end one (DELETE), or start another hutch mcp",
			len(f.live))
	}
	b := newBoxes(f.cfg)
	f.live[session] = b
	f.wg.Go(func() { f.await(session, b) })
	return b, nil
}

// await removes what a session had when it is over.
func (f *front) await(session *mcp.ServerSession, b *boxes) {
	_ = session.Wait() // however it ended
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := b.end(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-mcp:", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, session)
}

// close ends the sessions that there are, and waits for it.
func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	for session, b := range f.live {
		b.finish(errOver)
		go func() { _ = session.Close() }() // await sees it
	}
	f.mu.Unlock()
	f.wg.Wait()
}
