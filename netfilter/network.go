package netfilter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/netfilter/names"
	"github.com/hutch-sh/hutch/netfilter/netns"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/netfilter/proxy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Network is the network of one sandbox whose policy is not none.
type Network struct {
	e     *Engine
	id    string
	file  string       // of the names
	table *names.Table // since start
	rules atomic.Pointer[policy.Rules]
	// kernel is nil while eBPF does not enforce the policy; what it has refused is counted
	// by rule.
	kernel  atomic.Pointer[Enforced]
	refused counts
	asked   asked

	mu      sync.Mutex // guards what follows
	ns      *netns.Namespace
	names   *names.Server
	proxy   *proxy.Proxy
	served  map[io.Closer]bool // sockets
	serving sync.WaitGroup
	kept    map[string]bool
	closed  bool
}

// Namespace is one that no network has yet: who is in it finds neither a resolver nor a way out.
type Namespace struct{ ns *netns.Namespace }

// Ahead makes a namespace for a sandbox that is launched before there is a policy for it.
func (e *Engine) Ahead() (*Namespace, error) {
	ns, err := e.ready.take()
	if err != nil {
		return nil, unusable(err)
	}
	return &Namespace{ns}, nil
}

// File is the namespace, which a sandbox joins. It is the Namespace's.
func (a *Namespace) File() *os.File { return a.ns.File }

// Close gives it back, unless a network has been opened in it, whose it is then.
func (a *Namespace) Close() error {
	ns := a.ns
	if a.ns = nil; ns == nil {
		return nil
	}
	return ns.Close()
}

// Open makes a network with its policy in force, in the namespace at, which is the network's from
// then on, or in a new one where that is nil. dir is the sandbox's folder, which gets a file of names.
func (e *Engine) Open(id, dir string, p api.NetPolicy, at *Namespace) (_ *Network, err error) {
	n, err := e.network(id, dir, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	if at == nil {
		if at, err = e.Ahead(); err != nil {
			return nil, err
		}
	}
	n.ns, at.ns = at.ns, nil
	if err := n.ns.Apply(config(n.rules.Load())); err != nil {
		return nil, unusable(err)
	}
	return n, n.start()
}

func (e *Engine) network(id, dir string, p api.NetPolicy) (*Network, error) {
	rules, err := e.compiled.of(p)
	if err != nil {
		return nil, err
	}
	n := &Network{e: e, id: id, file: filepath.Join(dir, "names"), served: map[io.Closer]bool{},
		kept: map[string]bool{}}
	n.rules.Store(rules)
	return n, nil
}

// Adopt takes over the network that a daemon before has made, with the policy that was
// in force.
func (e *Engine) Adopt(id, dir string, p api.NetPolicy) (_ *Network, err error) {
	n, err := e.network(id, dir, p)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	files := e.held[id]
	delete(e.held, id)
	e.mu.Unlock()
	for name := range files {
		n.kept[name] = true
	}
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	// The namespace is what it is: a daemon of another configuration does not change it.
	if n.ns, err = netns.Adopt(files, config(n.rules.Load())); err != nil {
		return nil, err
	}
	return n, n.start()
}

// start serves the namespace's sockets.
func (n *Network) start() error {
	// The names that have an address keep it; the seed is for new ones.
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // it never fails
	table, err := names.Open(n.file, netns.Synthetic, seed)
	if err != nil {
		return err
	}
	n.table = table
	n.names = names.NewServer(names.Config{Table: table, Rules: n.rules.Load, Grant: n.grant, Denied: n.lookupDenied})
	c := proxy.Config{
		Rules: n.rules.Load, Name: table.Name, Synthetic: netns.Synthetic,
		Resolver: n.e.cfg.Resolver, Denied: n.connectionDenied, Failed: n.connectionFailed, Passed: n.passed,
		Ask: n.ask, Ours: n.e.ours,
	}
	if n.ns.Way == netns.Redirect {
		c.Destination = proxy.OriginalDestination
	}
	n.proxy = proxy.New(c)
	questions, err := answering(n.ns.DNS)
	if err != nil {
		return err
	}
	n.serving.Go(func() { n.names.ServeUDP(questions) })
	n.serving.Go(func() { n.names.ServeTCP(n.ns.DNSTCP) })
	return n.serveNew()
}

// serveNew serves the listeners that are not served yet, and keeps all files.
func (n *Network) serveNew() error {
	for _, l := range n.ns.TCP {
		if !n.served[l] {
			n.served[l] = true
			n.serving.Go(func() { n.proxy.ServeTCP(l) })
		}
	}
	if q := n.ns.SYNs; q != nil && !n.served[q] {
		n.served[q] = true
		n.serving.Go(func() { n.proxy.ServeSYNs(q) })
	}
	for _, c := range n.ns.UDP {
		if n.served[c] {
			continue
		}
		datagrams, err := proxy.NewDatagrams(c)
		if err != nil {
			return err
		}
		n.served[c] = true
		n.serving.Go(func() { n.proxy.ServeUDP(datagrams) })
	}
	n.release()
	files, err := n.ns.Files()
	if err != nil {
		return err
	}
	for name, f := range files {
		if !n.kept[name] {
			err = errors.Join(err, n.keep(name, f))
		}
		_ = f.Close()
	}
	return err
}

// release gives back what is kept of sockets that are not the namespace's any more.
func (n *Network) release() {
	names := n.ns.Names()
	for name := range n.kept {
		if !slices.Contains(names, name) {
			delete(n.kept, name)
			_ = n.e.cfg.Unkeep(key(n.id, name)) // with hutch-launch gone nothing is kept
		}
	}
}

func (n *Network) keep(name string, f *os.File) error {
	if err := n.e.cfg.Keep(key(n.id, name), f); err != nil {
		return fmt.Errorf("keep the sandbox's network: %w", err)
	}
	n.kept[name] = true
	return nil
}

// config is what the namespace must know of a policy.
func config(rules *policy.Rules) netns.Config {
	c := netns.Config{RawPorts: rules.RawPorts()}
	c.TCPPorts, c.Open = rules.Ports(policy.TCP)
	c.UDPPorts, _ = rules.Ports(policy.UDP)
	p := rules.Policy()
	for _, s := range p.AllowCIDRs {
		if prefix, err := api.ParseNetCIDR(s); err == nil { // Compile has read it
			c.CIDRs = append(c.CIDRs, prefix)
		}
	}
	return c
}

// File is the namespace, which a sandbox joins. It is the network's.
func (n *Network) File() *os.File { return n.ns.File }

// Update puts another policy in force and closes what it forbids. When it fails, the
// one before stays.
func (n *Network) Update(p api.NetPolicy) error {
	rules, err := n.e.compiled.of(p)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return net.ErrClosed
	}
	before := n.rules.Swap(rules)
	if err = n.enforce(); err == nil {
		return nil
	}
	n.rules.Store(before)
	if back := n.enforce(); back != nil {
		// Each part allows what both policies do, or less.
		return errors.Join(err, api.Errorf(api.Internal, "put the network policy before back in force: %w", back).
			WithHint("less may be reachable than it says; update the policy again, or create another sandbox"))
	}
	return err
}

// enforce puts n.rules in force, whatever is. What is forbidden ends first, what is allowed comes last.
func (n *Network) enforce() error {
	if err := n.updateKernel(); err != nil {
		return err
	}
	n.proxy.Recheck()
	n.release() // before their ports are bound again
	if err := n.ns.Apply(config(n.rules.Load())); err != nil {
		return unusable(err)
	}
	return n.serveNew()
}

// State says how the policy is enforced.
func (n *Network) State() (enforcement, proxy, detail string) {
	proxy = string(n.ns.Way)
	detail = fmt.Sprintf("only hutchd's proxy leads out of its namespace, by %s", n.ns.Way)
	if _, reason := n.e.known(); n.ns.Way != netns.Hold && reason != "" {
		detail += " (" + reason + ")"
	}
	if n.kernel.Load() != nil {
		return "ebpf", proxy, "the kernel refuses what the policy does not name, and " + detail
	}
	return "proxy", proxy, detail
}

// Uses counts what each rule has let pass, and refused.
func (n *Network) Uses() []api.NetUse {
	uses := []api.NetUse{}
	kernel := n.refused.all()
	for _, c := range n.proxy.Counts() {
		uses = append(uses, api.NetUse{
			Rule: c.Rule, Connections: int64(c.Connections), SentBytes: int64(c.BytesUp),
			ReceivedBytes: int64(c.BytesDown), Denials: int64(c.Denials) + kernel[c.Rule],
		})
		delete(kernel, c.Rule)
	}
	for rule, denials := range kernel {
		uses = append(uses, api.NetUse{Rule: rule, Denials: denials})
	}
	return uses
}

func (n *Network) lookupDenied(d names.Denial) { n.e.lookupDenied(n.id, d) }

// ask has somebody asked. An answer that is not there in time is no.
func (n *Network) ask(ctx context.Context, t api.NetTarget, d policy.Decision) Answer {
	if !n.asked.begin(t) {
		return No
	}
	wait := cmp.Or(n.rules.Load().Policy().AskS, api.DefaultAskS)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait*float64(time.Second)))
	defer cancel()
	until, _ := ctx.Deadline()
	a := n.e.cfg.Ask(ctx, n.id, api.AskEvent{NetTarget: t, Why: d.Why, HowToAllow: d.HowToAllow, Until: until.UTC().
		Truncate(time.Millisecond)})
	n.asked.end(t, a, errors.Is(ctx.Err(), context.DeadlineExceeded))
	return a
}

func (n *Network) passed(t api.NetTarget, rule string) { n.e.cfg.Passed(n.id, t, rule) }

func (n *Network) connectionDenied(d proxy.Denial) {
	t := api.NetTarget{Proto: d.Proto, Name: d.Name, Port: d.Port}
	// A synthetic address means nothing outside of the sandbox.
	if d.Address.IsValid() && (d.Name == "" || !netns.Synthetic.Contains(d.Address)) {
		t.Address = d.Address.String()
	}
	n.e.cfg.Denied(n.id, api.DeniedEvent{NetTarget: t, Rule: d.Rule, Why: d.Why, HowToAllow: d.HowToAllow, Count: 1,
		Untold: int64(d.Suppressed), Refusal: api.Refusal{By: "proxy", Errno: d.Errno}})
}

// Close ends all connections and gives the namespace back. It may be called twice.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	if n.names != nil {
		errs = append(errs, n.names.Close())
	}
	if n.proxy != nil {
		errs = append(errs, n.proxy.Close())
	}
	n.serving.Wait()
	if n.ns != nil {
		errs = append(errs, n.ns.Close())
	}
	for name := range n.kept {
		_ = n.e.cfg.Unkeep(key(n.id, name)) // with hutch-launch gone nothing is kept
	}
	return errors.Join(errs...)
}
