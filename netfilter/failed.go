package netfilter

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/netfilter/proxy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// connectionFailed tells of a connection that the policy allows and that hutchd could not make.
func (n *Network) connectionFailed(f proxy.Failure) {
	t := api.NetTarget{Proto: f.Proto, Name: f.Name, Port: f.Port}
	if f.Address.IsValid() {
		t.Address = f.Address.String()
	}
	n.e.cfg.Failed(n.id, api.FailedEvent{NetTarget: t, Why: f.Why, Hint: n.e.remedy(&f), Errno: f.Errno, Count: 1,
		Untold: int64(f.Suppressed)})
}

// Unanswered tells of the connections that have waited for their servers for a while, and of the names that got no
// answer of use, both since a time.
func (n *Network) Unanswered(since time.Time) {
	n.proxy.Unanswered(since)
	n.names.Unanswered(since)
}

// remedy is what to do about a connection that failed.
func (e *Engine) remedy(f *proxy.Failure) string {
	if policy.HostAddresses(f.Name) != nil {
		return "start the service; it must listen on 127.0.0.1 or ::1 of this machine"
	}
	if to := e.outside(f); to != nil {
		return "programs of this machine go there by the proxy " + to.Host +
			", which hutch does not do for a sandbox: " +
			"tell the program, and allow the proxy: " + proxyFlags(to)
	}
	var lookup *net.DNSError
	switch {
	case errors.As(f.Err, &lookup) && lookup.IsNotFound:
		return "check the name: it is looked up on this machine"
	case errors.As(f.Err, &lookup):
		return "check this machine's DNS"
	case errors.Is(f.Err, unix.ECONNREFUSED):
		return "check the port, and that the server runs"
	}
	return "check that this machine reaches it; a firewall may drop what it does not like"
}

// outside is the proxy that a program of the host's would have gone through, nil without one.
func (e *Engine) outside(f *proxy.Failure) *url.URL {
	if e.cfg.Outside == nil || f.Proto != policy.TCP {
		return nil
	}
	host, scheme := f.Name, "https"
	if host == "" {
		host = f.Address.String()
	}
	if f.Port == 80 {
		scheme = "http"
	}
	return e.cfg.Outside(&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, strconv.Itoa(int(f.Port)))})
}

// proxyFlags let a program in a sandbox use a proxy. Its password, if it has one, is the user's to type.
func proxyFlags(to *url.URL) string {
	name, port := to.Hostname(), to.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[to.Scheme]
	}
	if port == "" {
		port = "80"
	}
	a, err := netip.ParseAddr(name)
	allow := "--allow tcp://" + name + ":" + port
	switch {
	case name == "localhost" || err == nil && a.IsLoopback():
		name, allow = api.HostName, "--allow "+api.HostName+":"+port
	case err == nil:
		allow = "--allow-cidr " + a.String()
	}
	return allow + " -e HTTPS_PROXY=" + (&url.URL{Scheme: to.Scheme, Host: net.JoinHostPort(name, port)}).String()
}
