// Package netfilter is the network of sandboxes: each has a namespace that no packet
// leaves, and hutchd makes the connections that the sandbox's policy allows in its
// place.
//
//	netns   namespaces, and the sockets in them that everything arrives at
//	names   what a sandbox may know: names, with an address each that only it has
//	policy  what may be known and reached
//	proxy   carries connections and datagrams to where they were meant to go
//
// This package joins them, one Network per sandbox.
package netfilter

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/proxy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Answer is what somebody said who was asked.
type Answer = proxy.Answer

// The answers.
const (
	No    = proxy.No
	Once  = proxy.Once
	Rules = proxy.Rules
	Never = proxy.Never
)

// Way is how connections come to the proxies.
type Way = netns.Way

// Config is what an Engine needs; all but Way, Resolver, Failed, Outside, Passed, Ask, Wanted and Ours is
// required.
type Config struct {
	// Way is one that is asked for; "" is the best that works.
	Way Way
	// Resolver looks up what sandboxes connect to; nil is the host's own.
	Resolver *net.Resolver
	// Denied is told about what a sandbox is refused, before it can know. It must not block.
	Denied func(sandbox string, d api.DeniedEvent)
	// Failed is told about each allowed connection that fails outside of the sandbox, before it can know. It must not
	// block.
	Failed func(sandbox string, f api.FailedEvent)
	// Outside is the proxy that this host's own programs go through to a URL, nil for none. May be nil, as there is
	// none.
	Outside func(*url.URL) *url.URL
	// Passed is told about each connection, and flow of datagrams, that a policy allows, and by which rule. It must
	// not block.
	Passed func(sandbox string, t api.NetTarget, rule string)
	// Ask has somebody asked about a connection of a sandbox that is held meanwhile, and returns the answer, at the
	// latest when ctx ends. An answer that holds for more is in the network's policy by then. nil: the answer is no.
	Ask func(ctx context.Context, sandbox string, ask api.AskEvent) Answer
	// Wanted is called before a connection from the host to a port of a sandbox is made, and must not wait: what it
	// returns does, when something is to be done first, else it is nil, as Wanted itself may be.
	Wanted func(sandbox string) (wait func() error)
	// Ours says that another program of hutch's listens on a port of the host, where no sandbox is let to. nil: none.
	Ours func(port uint16) bool
	// Keep makes a file outlive this process, under a key; Unkeep ends that.
	Keep   func(key string, f *os.File) error
	Unkeep func(key string) error
	Logger *slog.Logger
}

// Engine makes the networks of one daemon's sandboxes. Its methods may be called from
// any goroutine.
type Engine struct {
	cfg      Config
	ready    pool[*netns.Namespace]
	compiled compiled
	kernel   *kernel // nil without eBPF

	mu     sync.Mutex
	way    Way    // "" until one was needed
	reason string // why not a better one
	held   map[string]map[string]*os.File
	// heldListeners are those of ports, by key.
	heldListeners map[string]*os.File
	listens       map[uint16]int // ports of the host that lead into sandboxes, and on how many addresses
}

// ours reports whether hutch itself listens on a port of the host.
func (e *Engine) ours(port uint16) bool {
	e.mu.Lock()
	own := e.listens[port] > 0
	e.mu.Unlock()
	return own || e.cfg.Ours != nil && e.cfg.Ours(port)
}

// listen notes that a port of the host leads into a sandbox, or with -1 that one does not any more.
func (e *Engine) listen(address string, change int) {
	at, err := api.ParsePortAddress(address)
	if err != nil || at.Path != "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listens[at.Port()] += change; e.listens[at.Port()] == 0 {
		delete(e.listens, at.Port())
	}
}

// New makes an Engine. held is what another process has kept of a daemon before, by
// key; the Engine takes what is its own out of it.
func New(cfg Config, held map[string]*os.File) *Engine {
	e := &Engine{cfg: cfg, way: cfg.Way, held: map[string]map[string]*os.File{}, heldListeners: map[string]*os.File{},
		listens: map[uint16]int{}}
	if e.way != "" {
		e.reason = "asked for"
	}
	if e.cfg.Ask == nil {
		e.cfg.Ask = func(context.Context, string, api.AskEvent) Answer { return proxy.No }
	}
	if e.cfg.Wanted == nil {
		e.cfg.Wanted = func(string) func() error { return nil }
	}
	if e.cfg.Failed == nil {
		e.cfg.Failed = func(string, api.FailedEvent) {}
	}
	if e.cfg.Passed == nil {
		e.cfg.Passed = func(string, api.NetTarget, string) {}
	}
	e.ready = pool[*netns.Namespace]{make: e.newNamespace, failed: func(err error) {
		cfg.Logger.Warn("make a network namespace ahead", "err", err)
	}}
	for key, f := range held {
		if strings.HasPrefix(key, portPrefix) {
			delete(held, key)
			e.heldListeners[key] = f
			continue
		}
		rest, mine := strings.CutPrefix(key, keyPrefix)
		id, name, ok := strings.Cut(rest, "/")
		if !mine || !ok {
			continue
		}
		delete(held, key)
		if e.held[id] == nil {
			e.held[id] = map[string]*os.File{}
		}
		e.held[id][name] = f
	}
	return e
}

// keyPrefix begins the keys of files that are kept; the sandbox's id and the file's
// name follow.
const keyPrefix = "net/"

func key(id, name string) string { return keyPrefix + id + "/" + name }

// Close gives back what no sandbox has used.
func (e *Engine) Close() error {
	e.ready.close()
	if e.kernel != nil {
		return e.kernel.close()
	}
	return nil
}

// Adopted says that the sandboxes of a daemon before are taken over: what is left of
// others is forgotten.
func (e *Engine) Adopted() {
	e.mu.Lock()
	left, ports := e.held, e.heldListeners
	e.held, e.heldListeners = map[string]map[string]*os.File{}, map[string]*os.File{}
	e.mu.Unlock()
	for key, f := range ports {
		_ = unix.Shutdown(int(f.Fd()), unix.SHUT_RDWR) // hutch-launch lets go of it in its own time
		_ = f.Close()
		_ = e.cfg.Unkeep(key)
	}
	for id, files := range left {
		for name, f := range files {
			_ = f.Close()
			_ = e.cfg.Unkeep(key(id, name)) // with hutch-launch gone nothing is kept
		}
	}
	if e.kernel != nil {
		if err := e.kernel.adopted(); err != nil {
			e.cfg.Logger.Warn("what eBPF knows of sandboxes that are gone stays", "err", err)
		}
	}
}

// Way is how connections come to the proxies, and why not in a better way.
func (e *Engine) Way() (way Way, reason string, err error) {
	if way, reason = e.known(); way != "" {
		return way, reason, nil
	}
	n, err := e.best()
	if err != nil {
		return "", "", err
	}
	_ = n.Close()
	way, reason = e.known()
	return way, reason, nil
}

func (e *Engine) known() (Way, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.way, e.reason
}

// newNamespace finds the way when it is first needed.
func (e *Engine) newNamespace() (*netns.Namespace, error) {
	if way, _ := e.known(); way != "" {
		return netns.New(way)
	}
	return e.best()
}

func (e *Engine) best() (*netns.Namespace, error) {
	n, reason, err := netns.Best()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	first := e.way == ""
	e.way, e.reason = n.Way, reason
	e.mu.Unlock()
	if first && n.Way != netns.Hold {
		e.cfg.Logger.Warn("this kernel lacks what network policies work best with", "way", n.Way, "why", reason)
	}
	return n, nil
}

// unusable explains why a namespace could not be made.
func unusable(err error) error {
	var un *netns.Unsupported
	if errors.As(err, &un) {
		return api.Errorf(api.Unavailable, "network: %w", err).WithField("network").
			WithHint("hutch doctor shows what the kernel lacks (nf_tables_tproxy)")
	}
	return api.Errorf(api.Internal, "make the sandbox's network: %w", err).
		WithHint("hutch doctor shows what this machine allows")
}
