package netfilter

import (
	"net/netip"
	"os"
	"sync"

	"github.com/hutch-sh/hutch/netfilter/names"
	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Plain is the network of a sandbox in mode none: loopback, and a resolver that knows no name and tells which were
// asked for. Most that fails without a network fails at a lookup, and says so in a way that nobody would take for a
// policy.
type Plain struct {
	e  *Engine
	id string
	ns *netns.Plain

	serving sync.WaitGroup
	mu      sync.Mutex
	names   *names.Server // nil until something is asked, which in most sandboxes nothing is
	closed  bool
}

// plainLimits are a resolver's that refuses everything: who goes on asking is told the same.
var plainLimits = names.Limits{Queries: 1000}

// Plain makes the network of mode none for a sandbox.
func (e *Engine) Plain(id string) (*Plain, error) {
	ns, err := netns.NewPlain()
	if err != nil {
		return nil, err
	}
	return e.plain(id, ns), nil
}

// AdoptPlain goes on answering in the namespace of a sandbox of a daemon before. It owns the file.
func (e *Engine) AdoptPlain(id string, ns *os.File) (*Plain, error) {
	p, err := netns.AdoptPlain(ns)
	if err != nil {
		return nil, err
	}
	return e.plain(id, p), nil
}

func (e *Engine) plain(id string, ns *netns.Plain) *Plain {
	p := &Plain{e: e, id: id, ns: ns}
	p.serving.Go(p.serve)
	return p
}

// File is the namespace, which a sandbox joins. It is the Plain's.
func (p *Plain) File() *os.File { return p.ns.File }

// serve waits for the first question and answers that and all others.
func (p *Plain) serve() {
	questions, err := p.ns.Wait()
	if err != nil {
		return
	}
	s := p.server()
	if s == nil {
		_ = questions.Close()
		return
	}
	s.ServeUDP(questions)
}

func (p *Plain) server() *names.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.names = names.NewServer(names.Config{
			Table: new(names.Table), Rules: func() *policy.Rules { return modeNone }, Denied: p.denied,
			Limits: plainLimits,
		})
	}
	return p.names
}

func (p *Plain) denied(d names.Denial) { p.e.lookupDenied(p.id, d) }

// Close ends it and gives the namespace back. It may be called twice.
func (p *Plain) Close() error {
	p.mu.Lock()
	closed, s := p.closed, p.names
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	err := p.ns.Close()
	if s != nil {
		_ = s.Close() // of a socket of loopback
	}
	p.serving.Wait()
	return err
}

// Resolver is the address of the resolver in each network that Open makes, NoResolver that of those that Plain makes.
func (e *Engine) Resolver() netip.Addr { return netns.Resolver }

// NoResolver is where programs ask in vain.
func (e *Engine) NoResolver() netip.Addr { return netns.Refuser }

func (e *Engine) lookupDenied(id string, d names.Denial) {
	e.cfg.Denied(id, api.DeniedEvent{
		NetTarget: api.NetTarget{Name: d.Name}, Rule: d.Rule, Why: d.Why, HowToAllow: d.HowToAllow, Count: 1,
		Untold:  int64(d.Suppressed),
		Refusal: api.Refusal{By: "names", Errno: d.Answer},
	})
}
