package main

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/hutch-sh/hutch/internal/listen"
	"github.com/hutch-sh/hutch/netfilter"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/ports"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// Settings of the network that are for tests and for finding out why something fails:
// the environment that the daemon was started with.
const (
	// envResolver is the address and port of a DNS server that is asked instead of the
	// host's own.
	envResolver = "HUTCH_NETWORK_RESOLVER"
	// envWay is how connections come to the proxy, where it shall not be the best way
	// that the kernel allows: tproxy, redirect, per-port.
	envWay = "HUTCH_NETWORK_WAY"
)

// networks is package netfilter for package sandbox.
type networks struct {
	*netfilter.Engine
	mount  string // of cgroup2, where eBPF enforces policies
	reason string // why it does not
}

func (n networks) Ahead() (sandbox.Namespace, error) {
	a, err := n.Engine.Ahead()
	if err != nil { // no nil pointer that is no nil interface
		return nil, err
	}
	return a, nil
}

func (n networks) Plain(id string) (sandbox.Namespace, error) {
	return plain(n.Engine.Plain(id))
}

func (n networks) AdoptPlain(id string, netns *os.File) (sandbox.Namespace, error) {
	return plain(n.Engine.AdoptPlain(id, netns))
}

func plain(p *netfilter.Plain, err error) (sandbox.Namespace, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (n networks) Open(id, dir string, p api.NetPolicy, at sandbox.Namespace) (sandbox.Network, error) {
	own, _ := at.(*netfilter.Namespace)
	return network(n.Engine.Open(id, dir, p, own))
}

func (n networks) Adopt(id, dir string, p api.NetPolicy) (sandbox.Network, error) {
	return network(n.Engine.Adopt(id, dir, p))
}

func (n networks) Ports(id string, netns *os.File) (ports.Carrier, error) {
	p, err := n.Engine.Ports(id, netns)
	if err != nil { // a nil pointer must not become an interface that is not nil
		return nil, err
	}
	return p, nil
}

// Check also refuses what must be enforced by eBPF where that is not on.
func (n networks) Check(p api.NetPolicy) error {
	if slices.Contains(p.Require, api.RequireEBPF) && n.mount == "" {
		return api.Errorf(api.Unavailable, "network.require: network policies are not enforced by eBPF here: %s",
			n.reason).WithField("network.require").
			WithHint("leave it out: the policy is enforced by a proxy, which no process of the sandbox can get around")
	}
	return n.Engine.Check(p)
}

func (n networks) Enforce(id, cgroup string, of sandbox.Network) (sandbox.Enforced, error) {
	if n.mount == "" {
		return unenforced{}, nil
	}
	number, err := inode(filepath.Join(n.mount, cgroup))
	if err != nil {
		return nil, err
	}
	enforced, _ := of.(*netfilter.Network) // nil in mode none
	return n.Engine.Enforce(id, number, enforced)
}

// unenforced is where there is no eBPF.
type unenforced struct{}

func (unenforced) Narrow(uint64, api.NetPolicy) error {
	return api.Errorf(api.Unavailable, "network: a policy of a single exec takes eBPF").WithField("network")
}
func (unenforced) Widen(uint64) error { return nil }

func (unenforced) Settle()      {}
func (unenforced) Close() error { return nil }

// network keeps a nil pointer from becoming an interface that is not nil.
func network(n *netfilter.Network, err error) (sandbox.Network, error) {
	if err != nil {
		return nil, err
	}
	return n, nil
}

// openNetworks makes the engine; held is what hutch-launch has kept.
func (d *daemon) openNetworks(held map[string]*os.File) networks {
	cfg := netfilter.Config{
		Way:    netfilter.Way(os.Getenv(envWay)),
		Denied: func(id string, denied api.DeniedEvent) { d.manager.Refusals.Denied(id, denied) },
		Failed: func(id string, f api.FailedEvent) { d.manager.Refusals.Failed(id, f) },
		Outside: func(u *url.URL) *url.URL {
			to, err := http.ProxyFromEnvironment(&http.Request{URL: u})
			if err != nil {
				return nil // of no use to the host's programs, either
			}
			return to
		},
		Passed: func(id string, t api.NetTarget, rule string) { d.manager.Refusals.Passed(id, t, rule) },
		Ask:    d.askAbout,
		Wanted: func(id string) func() error { return d.manager.Pauses.Wake(id) },
		Ours:   func(port uint16) bool { return listen.Claimed(d.cfg.Paths.Runtime, port) },
		Keep:   d.launcher.Keep, Unkeep: d.launcher.Unkeep, Logger: d.log,
	}
	if server := os.Getenv(envResolver); server != "" {
		d.log.Warn("names of sandboxes are not looked up as the host does", "resolver", server)
		cfg.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn,
			error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
	}
	n := networks{Engine: netfilter.New(cfg, held), reason: d.cfg.EBPF.Reason}
	if d.cfg.EBPF.On {
		n.mount = d.cfg.Cgroups.Mounts[""]
	}
	return n
}
