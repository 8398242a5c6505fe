package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ports"
)

// fakeNetworks counts what is open of each kind.
type fakeNetworks struct {
	r *rig

	mu   sync.Mutex
	open map[string]int
}

func (n *fakeNetworks) count() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]int{}
	for what, k := range n.open {
		all["open "+what] = k
	}
	return all
}

// forget is the end of the process that has all of it; what is adopted counts anew.
func (n *fakeNetworks) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = map[string]int{}
}

// made counts one that was made, until the returned function is called, once.
func (n *fakeNetworks) made(what string) (closed func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[what]++
	once := sync.OnceValue(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open[what]--
		return n.r.points.at("Networks.Close " + what)
	})
	return once
}

// fakeNamespace is a Namespace or a Network.
type fakeNamespace struct {
	file   *os.File
	closed func() error

	mu     sync.Mutex
	policy api.NetPolicy
	n      *fakeNetworks
}

func (n *fakeNetworks) namespace(what string) (*fakeNamespace, error) {
	f, err := n.r.newFile("netns", "net-")
	if err != nil {
		return nil, err
	}
	closed := n.made(what)
	return &fakeNamespace{file: f, n: n, closed: func() error {
		return errors.Join(f.Close(), os.Remove(f.Name()), closed())
	}}, nil
}

func (ns *fakeNamespace) File() *os.File       { return ns.file }
func (ns *fakeNamespace) Close() error         { return ns.closed() }
func (ns *fakeNamespace) Unanswered(time.Time) {}
func (ns *fakeNamespace) Uses() []api.NetUse   { return nil }
func (ns *fakeNamespace) State() (string, string, string) {
	return "proxy", "on", "fake"
}

func (ns *fakeNamespace) Update(p api.NetPolicy) error {
	if err := ns.n.r.points.at("Network.Update"); err != nil {
		return err
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.policy = p
	return nil
}

func (n *fakeNetworks) Plain(string) (Namespace, error) {
	if err := n.r.points.at("Networks.Plain"); err != nil {
		return nil, err
	}
	return n.namespace("plain networks")
}

func (n *fakeNetworks) AdoptPlain(_ string, netns *os.File) (Namespace, error) {
	at, err := filepath.EvalSymlinks(netns.Name())
	if err == nil {
		err = n.r.points.at("Networks.AdoptPlain")
	}
	return &fakeNamespace{file: netns, n: n, closed: func() error {
		return errors.Join(netns.Close(), os.Remove(at))
	}}, err
}

func (n *fakeNetworks) Check(api.NetPolicy) error { return n.r.points.at("Networks.Check") }
func (n *fakeNetworks) CheckNarrower(_, _ api.NetPolicy) error {
	return n.r.points.at("Networks.CheckNarrower")
}

func (n *fakeNetworks) Ahead() (Namespace, error) {
	if err := n.r.points.at("Networks.Ahead"); err != nil {
		return nil, err
	}
	return n.namespace("networks ahead")
}

// Open makes a network; one in a namespace has that to close.
func (n *fakeNetworks) Open(_, _ string, p api.NetPolicy, at Namespace) (Network, error) {
	if err := n.r.points.at("Networks.Open"); err != nil {
		return nil, err
	}
	if at != nil {
		ns := at.(*fakeNamespace)
		return &fakeNamespace{file: ns.file, n: n, policy: p, closed: n.made("networks")}, nil
	}
	ns, err := n.namespace("networks")
	if err == nil {
		ns.policy = p
	}
	return ns, err
}

func (n *fakeNetworks) Adopt(_, _ string, p api.NetPolicy) (Network, error) {
	return n.Open("", "", p, nil)
}

func (n *fakeNetworks) Resolver() netip.Addr   { return resolver }
func (n *fakeNetworks) NoResolver() netip.Addr { return resolver }

type fakeEnforced struct {
	n      *fakeNetworks
	closed func() error
}

func (n *fakeNetworks) Enforce(string, string, Network) (Enforced, error) {
	if err := n.r.points.at("Networks.Enforce"); err != nil {
		return nil, err
	}
	return &fakeEnforced{n, n.made("enforced policies")}, nil
}

func (e *fakeEnforced) Settle()      {}
func (e *fakeEnforced) Close() error { return e.closed() }
func (e *fakeEnforced) Narrow(uint64, api.NetPolicy) error {
	return e.n.r.points.at("Enforced.Narrow")
}
func (e *fakeEnforced) Widen(uint64) error { return e.n.r.points.at("Enforced.Widen") }

// fakePorts are those of one sandbox.
type fakePorts struct {
	n      *fakeNetworks
	id     string
	closed func() error
	list   []api.Port
}

func (n *fakeNetworks) Ports(id string, netns *os.File) (ports.Carrier, error) {
	if err := n.r.points.at("Networks.Ports"); err != nil {
		return nil, err
	}
	if _, err := netns.Stat(); err != nil {
		return nil, err
	}
	return &fakePorts{n: n, id: id, closed: n.made("ports")}, nil
}

func (p *fakePorts) Expose(e api.PortExposeParams, _ *os.File) (api.Port, error) {
	if err := p.n.r.points.at("Ports.Expose"); err != nil {
		return api.Port{}, err
	}
	port := api.Port{Sandbox: p.id, Port: e.Port, Address: fmt.Sprintf("127.0.0.1:%d", 40000+e.Port), Token: "secret",
		URL: "http://secret"}
	p.list = append(p.list, port)
	return port, nil
}

func (p *fakePorts) Adopt(port api.Port) error {
	p.list = append(p.list, port)
	return p.n.r.points.at("Ports.Adopt")
}

func (p *fakePorts) List() []api.Port { return slices.Clone(p.list) }

func (p *fakePorts) Unexpose(address string) error {
	if err := p.n.r.points.at("Ports.Unexpose"); err != nil {
		return err
	}
	p.list = slices.DeleteFunc(p.list, func(o api.Port) bool { return o.Address == address })
	return nil
}

func (p *fakePorts) Close() error { return p.closed() }
