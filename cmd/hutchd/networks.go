package main

import (
	"context"
	"net"
	"os"

	"github.com/hutch-sh/hutch/netfilter"
	"github.com/hutch-sh/hutch/runtime/api"
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
type networks struct{ *netfilter.Engine }

func (n networks) Open(id, dir string, p api.NetPolicy) (sandbox.Network, error) {
	return network(n.Engine.Open(id, dir, p))
}

func (n networks) Adopt(id, dir string, p api.NetPolicy) (sandbox.Network, error) {
	return network(n.Engine.Adopt(id, dir, p))
}

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
		Denied: func(id string, denied api.DeniedEvent) { d.manager.Denied(id, denied) },
		Passed: func(id string, t api.NetTarget) { d.manager.Passed(id, t) },
		Keep:   d.launcher.Keep, Unkeep: d.launcher.Unkeep, Logger: d.log,
	}
	if server := os.Getenv(envResolver); server != "" {
		d.log.Warn("names of sandboxes are not looked up as the host does", "resolver", server)
		cfg.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
	}
	return networks{netfilter.New(cfg, held)}
}
