// Command hutch-web serves hutch over HTTP. `hutch web` becomes it. It is one more client of hutchd: every request is
// one call, or a few.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/become"
	"github.com/hutch-sh/hutch/internal/harden"
	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/webapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
	"github.com/hutch-sh/hutch/runtime/rest/e2b"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-web:", err)
		os.Exit(1)
	}
}

const (
	// maxConns bounds the connections at once: those beyond wait to be accepted.
	maxConns = 4096
	// lastRequests is how long requests may take to end when the server is to.
	lastRequests = 5 * time.Second
	minToken     = 16
)

func run(ctx context.Context) (err error) {
	if os.Getenv(webapi.NoticeVariable) != "" {
		return notice(ctx)
	}
	var cfg webapi.Config
	if err := become.Config(webapi.Variable, "hutch web", &cfg); err != nil {
		return err
	}
	at, err := api.ParsePortAddress(cfg.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	l, err := listening(at)
	if err != nil {
		return err
	}
	defer l.Close()
	places, err := paths.Resolve(os.Getenv, os.Geteuid())
	if err == nil {
		err = places.MakeDirs()
	}
	if err != nil {
		return err
	}
	release, err := claim(places.Runtime, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	report := func(err error) { log.Error("what has changed is not in force", "err", err) }
	certs, say, forgetCert, err := certificatesFor(&cfg, places.Runtime, l, report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forgetCert()) }()
	clients, forget, err := clientsFor(&cfg, at, places.Runtime, l, report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forget()) }()
	say()
	if err := harden.Process(); err != nil {
		return err
	}
	s := rest.New(rest.Config{Clients: clients, Unix: at.Path != "", Hosts: cfg.Hosts, Registries: cfg.Registries,
		MaxUpload: cfg.MaxUpload, Log: log,
		Connect: func(ctx context.Context) (*client.Client, error) {
			return client.Connect(ctx, client.ConnectOptions{})
		}})
	defer s.Close()
	servers := []server{{s.HTTP(), rest.Limited(l, maxConns)}}
	if cfg.E2B != "" {
		second, end, serr := serverE2B(ctx, &cfg, s, log, places)
		if serr != nil {
			return serr
		}
		defer func() { err = errors.Join(err, end()) }()
		servers = append(servers, second)
	}
	for _, each := range servers {
		each.TLSConfig = certs.config()
	}
	return serve(ctx, servers)
}

// server is an HTTP server and where it listens.
type server struct {
	*http.Server
	l net.Listener
}

// serverE2B listens for those who speak as E2B's SDKs do.
func serverE2B(ctx context.Context, cfg *webapi.Config, s *rest.Server, log *slog.Logger,
	places paths.Paths) (_ server, end func() error, err error) {
	at, err := api.ParsePortAddress(cfg.E2B)
	if err != nil {
		return server{}, nil, fmt.Errorf("--e2b: %w", err)
	}
	l, err := listening(at)
	if err != nil {
		return server{}, nil, err
	}
	release, err := claim(places.Runtime, l)
	if err != nil {
		return server{}, nil, errors.Join(err, l.Close())
	}
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP: there is no path
	shape, err := e2b.New(ctx, e2b.Config{REST: s, Log: log, Domain: cmp.Or(cfg.E2BDomain, "localhost"), Port: port,
		Folder: filepath.Join(places.Runtime, "e2b-"+places.SocketID()+"-")})
	if err != nil {
		return server{}, nil, errors.Join(err, l.Close(), release())
	}
	fmt.Fprintf(os.Stderr, "hutch-web: E2B's shape on %s://%s\n", scheme(cfg), l.Addr())
	return server{s.Shaped(shape.Handler()), rest.Limited(l, maxConns)}, func() error {
		err := shape.Close()
		_ = l.Close() // as its server has done
		return errors.Join(err, release())
	}, nil
}

// claim keeps sandboxes from the port of a listener.
func claim(dir string, l net.Listener) (release func() error, err error) {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return func() error { return nil }, nil
	}
	return listen.Claim(dir, uint16(at.Port))
}

// serve answers requests until ctx ends, and then those that are under way.
func serve(ctx context.Context, servers []server) error {
	ended := make(chan error, len(servers))
	for _, s := range servers {
		go func() {
			if s.TLSConfig != nil {
				ended <- s.ServeTLS(s.l, "", "")
			} else {
				ended <- s.Serve(s.l)
			}
		}()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), lastRequests)
	defer cancel()
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() {
			if s.Shutdown(last) != nil {
				_ = s.Close() // streams do not end by themselves
			}
		})
	}
	all.Wait()
	return nil
}

func grants(names []string) (list []rest.Grant) {
	for _, name := range names {
		list = append(list, rest.Grant(name))
	}
	return list
}

func scheme(cfg *webapi.Config) string {
	if cfg.TLS || cfg.TLSCert != "" {
		return "https"
	}
	return "http"
}

func listening(at api.PortAddress) (net.Listener, error) {
	f, err := listen.On(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// clientsFor are those who may make requests, and says where the server and its token are. A token that is made here is
// in a file of the user's alone, which forget removes.
func clientsFor(cfg *webapi.Config, at api.PortAddress, dir string, l net.Listener,
	report func(error)) (clients func() []*rest.Client, forget func() error, err error) {
	one := func(token string) func() []*rest.Client {
		all := []*rest.Client{rest.OneClient(token, grants(cfg.Grant))}
		return func() []*rest.Client { return all }
	}
	nothing := func() error { return nil }
	if at.Path != "" {
		fmt.Fprintf(os.Stderr, "hutch-web: listening on unix:%s, for processes of this user\n", at.Path)
		return one(""), remover(at.Path), nil
	}
	listens := func() { fmt.Fprintf(os.Stderr, "hutch-web: listening on %s://%s\n", scheme(cfg), l.Addr()) }
	if cfg.Tokens != "" {
		all, err := newFresh(func() ([]*rest.Client, error) { return readClients(cfg.Tokens) }, report, cfg.Tokens)
		if err != nil {
			return nil, nil, fmt.Errorf("--tokens: %w", err)
		}
		listens()
		return all.get, nothing, nil
	}
	if cfg.TokenFile != "" {
		token, err := client.ReadToken(cfg.TokenFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--token-file: %w", err)
		}
		if len(token) < minToken {
			return nil, nil, fmt.Errorf("--token-file %s: a token has at least %d characters", cfg.TokenFile, minToken)
		}
		listens()
		return one(token), nothing, nil
	}
	listens()
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	path := filepath.Join(dir, "web-"+fileName(l)+".token")
	if err := writeNew(path, []byte(token+"\n")); err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(os.Stderr, "hutch-web: the token is in %s\n", path)
	return one(token), remover(path), nil
}

// fileName is a listener's in the names of files.
func fileName(l net.Listener) string {
	return strings.NewReplacer("[", "", "]", "", "/", "-").Replace(l.Addr().String())
}

// writeNew writes a file for the user's programs. One of a server before on the same port, which was killed, is
// replaced.
func writeNew(path string, text []byte) error {
	if err := gone(os.Remove(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// remover removes a file that is there now, unless another has taken its place by then.
func remover(path string) func() error {
	own, err := os.Lstat(path)
	return func() error {
		now, nerr := os.Lstat(path)
		if err != nil || nerr != nil || !os.SameFile(own, now) {
			return nil
		}
		return gone(os.Remove(path))
	}
}

// gone takes the error that something was gone already for none.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
