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

	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// maxSessions bounds the sessions at once: each may have sandboxes.
	maxSessions = 32
	// sessionTimeout ends a session whose client has gone without a word.
	sessionTimeout = 30 * time.Minute
)

// front serves any number of sessions over HTTP, each with sandboxes of its own.
type front struct {
	cfg   mcpapi.Config
	tools []api.Tool
	token string

	mu   sync.Mutex // guards live
	live map[*mcp.ServerSession]bool
	wg   sync.WaitGroup // ends of sessions
}

// serveHTTP serves until ctx ends. The address is the loopback's, and each request has the token: any user of the machine,
// and any web page, can reach it.
func serveHTTP(ctx context.Context, cfg mcpapi.Config) error {
	host, _, err := net.SplitHostPort(cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http %s: %w", cfg.HTTP, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--http %s: only addresses of the loopback, such as 127.0.0.1:8000", cfg.HTTP)
	}
	f := &front{cfg: cfg, token: strings.ToLower(rand.Text()), live: map[*mcp.ServerSession]bool{}}
	if cfg.TokenFile != "" {
		if f.token, err = client.ReadToken(cfg.TokenFile); err != nil {
			return fmt.Errorf("--token-file: %w: chmod 600 makes it yours alone", err)
		}
		if len(f.token) < 16 {
			return fmt.Errorf("%s: a token has at least 16 characters", cfg.TokenFile)
		}
	}
	b := newBoxes(cfg)
	f.tools, err = b.tools(ctx)
	f.cfg = b.cfg
	if err = errors.Join(err, b.end(ctx)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return err
	}
	sessions := mcp.NewStreamableHTTPHandler(f.session, &mcp.StreamableHTTPOptions{SessionTimeout: sessionTimeout}) // checks Host
	server := &http.Server{
		Handler:           f.authorized(http.NewCrossOriginProtection().Handler(sessions)),
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
	}
	fmt.Fprintf(os.Stderr, "hutch-mcp: listening on http://%s\n", l.Addr())
	if cfg.TokenFile == "" {
		fmt.Fprintf(os.Stderr, "hutch-mcp: Authorization: Bearer %s\n", f.token)
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = server.Serve(l)
	f.close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// authorized lets those in who know the token.
func (f *front) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The name of a scheme has no case (RFC 9110, 11.1).
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(strings.TrimLeft(token, " ")), []byte(f.token)) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Authorization: Bearer and the token that hutch mcp was started with are needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// session makes the server of a new session, which ends with it.
func (f *front) session(*http.Request) *mcp.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.live) >= maxSessions {
		return nil
	}
	b := newBoxes(f.cfg)
	s, err := newServer(b, f.tools, func(session *mcp.ServerSession) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.live[session] {
			f.live[session] = true
			f.wg.Go(func() { f.await(session, b) })
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-mcp:", err)
		return nil
	}
	return s
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
	for session := range f.live {
		go func() { _ = session.Close() }() // await sees it
	}
	f.mu.Unlock()
	f.wg.Wait()
}
