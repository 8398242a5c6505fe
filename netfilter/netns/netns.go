// Package netns makes the network namespaces of sandboxes: only lo, routes that
// make every synthetic address the namespace's own, a rule that hands what goes there
// to sockets of hutchd's, and those sockets, which were born inside and work from any
// thread. No packet ever leaves such a namespace.
package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
	"github.com/hutch-sh/hutch/netfilter/hold"
)

// Synthetic is where names have their addresses: RFC 2544's, which no network that
// is really there uses. Its second address is the resolver's.
var (
	Synthetic = netip.MustParsePrefix("198.18.0.0/15")
	Resolver  = netip.MustParseAddr("198.18.0.1")
)

// The transparent sockets are bound to addresses for documentation, to which there is
// no route: a program inside cannot connect to the listener itself, but only to
// what the rules hand to it. (In mode open there is, and it is a literal like any.)
var (
	listener4 = netip.MustParseAddr("192.0.2.1")
	listener6 = netip.MustParseAddr("2001:db8::1")
)

const (
	dnsPort   = 53
	proxyPort = 1 // of the transparent sockets; of no other's
)

// Config is what of a policy decides about routes and rules.
type Config struct {
	Open     bool           // literals come to the proxy, too
	CIDRs    []netip.Prefix // literals that do although Open is not set
	UDPPorts []uint16       // of datagrams that come to the proxy
	TCPPorts []uint16       // all that listeners are for, in the way PerPort
	RawPorts []uint16       // of names: those of 80 and 443 are held, too, in the way Hold
}

// normalise makes equal what is the same for a way.
func (c *Config) normalise(w Way) {
	if w != PerPort {
		c.TCPPorts = nil
	}
	c.RawPorts = slices.DeleteFunc(slices.Clone(c.RawPorts), func(p uint16) bool {
		return w != Hold || p != 80 &&
			p != 443
	})
	for _, ports := range []*[]uint16{&c.UDPPorts, &c.TCPPorts, &c.RawPorts} {
		*ports = slices.Compact(slices.Sorted(slices.Values(*ports)))
	}
}

func (c *Config) equal(d *Config) bool {
	return c.Open == d.Open && slices.Equal(c.CIDRs, d.CIDRs) && slices.Equal(c.RawPorts, d.RawPorts) &&
		slices.Equal(c.UDPPorts, d.UDPPorts) && slices.Equal(c.TCPPorts, d.TCPPorts)
}

// Namespace is one sandbox's network. Its sockets are hutchd's.
type Namespace struct {
	File *os.File // the namespace itself
	Way  Way

	// TCP are the listeners of connections. Where an accepted one was meant to go is its
	// local address; in the way Redirect conntrack knows (SO_ORIGINAL_DST), and one that
	// was not redirected was made to the listener itself.
	TCP []*net.TCPListener
	// UDP are sockets for datagrams, one for each port; IP_PKTINFO tells the address that
	// a datagram was for.
	UDP    []*net.UDPConn
	DNS    *net.UDPConn     // the resolver's
	DNSTCP *net.TCPListener // the same
	// SYNs is where connections are before they are accepted, in the way Hold, but for those
	// to ports 80 and 443 that are not raw: each needs a verdict.
	SYNs *hold.Queue

	config  Config         // in force
	partly  bool           // of config only a part is: what came after it failed
	routed  []netip.Prefix // besides Synthetic
	heldWeb []uint16       // ports of TLS and HTTP that there are rules to hold for
	spare   *spares        // until the first Apply; may be nil
}

// Close gives everything back; the kernel removes the namespace in its own time
// once the last process in it has ended.
func (n *Namespace) Close() error {
	var errs []error
	n.spare.close()
	for _, l := range n.TCP {
		errs = append(errs, l.Close())
	}
	for _, c := range n.UDP {
		errs = append(errs, c.Close())
	}
	if n.DNS != nil {
		errs = append(errs, n.DNS.Close())
	}
	if n.DNSTCP != nil {
		errs = append(errs, n.DNSTCP.Close())
	}
	if n.SYNs != nil {
		errs = append(errs, n.SYNs.Close())
	}
	if n.File != nil {
		errs = append(errs, n.File.Close())
	}
	// Servers close their sockets themselves.
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, net.ErrClosed) })...)
}

// onOwnThread runs do on a thread that ends with it: one that has entered another
// network namespace could not go back (setns into a namespace of the initial user
// namespace is EPERM). The main thread never ends, and /proc/self shows its
// namespaces, so there the work moves to another one.
func onOwnThread(do func() error) error {
	done := make(chan error, 1)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			moved := make(chan struct{})
			go func() { // cannot land here: this thread is locked
				defer close(moved)
				run()
			}()
			<-moved
			return
		}
		done <- do()
	}
	go run()
	return <-done
}

// enterNew moves the thread into a namespace of its own.
func enterNew() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	// /proc/sys/net shows the namespace of the thread that opens it.
	// Servers inside may use low ports although nobody has NET_BIND_SERVICE here. Ping
	// sockets stay refused, as they are in a new namespace (ping_group_range): the kernel
	// would answer for synthetic addresses itself.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return ns, fmt.Errorf("open low ports: %w", err)
	}
	return ns, nil
}

// inside runs do on a thread in the namespace.
func (n *Namespace) inside(do func() error) error {
	return onOwnThread(func() error {
		if err := withFD(n.File, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return do()
	})
}

// withFD does not use File.Fd, which may change the file's mode.
func withFD(f *os.File, do func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var derr error
	if err := rc.Control(func(fd uintptr) { derr = do(int(fd)) }); err != nil {
		return err
	}
	return derr
}

// New makes a namespace in which names are reachable and literals are not. Apply adds
// what a policy wants beyond that.
func New(way Way) (*Namespace, error) {
	n := &Namespace{Way: way}
	err := onOwnThread(func() (err error) {
		if n.File, err = enterNew(); err != nil {
			return err
		}
		return n.open()
	})
	if err != nil {
		_ = n.Close()
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return n, nil
}

// open makes routes, rules and sockets, on a thread in the namespace.
func (n *Namespace) open() (err error) {
	if err := namesOnly.Send(); err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	if err := send6(nlmsg.Batch.Send, namesOnly6); err != nil {
		return fmt.Errorf("routes of IPv6: %w", err)
	}
	switch n.Way {
	case Hold, TProxy:
		if n.Way == Hold {
			err = n.holdSYNs()
		} else if err = tproxyRules.Send(); err == nil {
			err = send6(nlmsg.Batch.Send, tproxyRules6)
		}
		if err != nil {
			return fmt.Errorf("tproxy rules: %w", err)
		}
		if err := n.listen(listener4, proxyPort); err != nil {
			return err
		}
		if err := n.listen(listener6, proxyPort); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return err
		}
	case Redirect:
		if err := redirectRules.Send(); err != nil {
			return fmt.Errorf("redirect rules: %w", err)
		}
		if err := n.listen(localhost, proxyPort); err != nil {
			return err
		}
	case PerPort: // Apply opens the listeners, which only the policy knows
	}
	dns := netip.AddrPortFrom(Resolver, dnsPort)
	if n.DNS, err = listenUDP(dns); err != nil {
		return err
	}
	if n.DNSTCP, err = listenTCP(dns); err != nil {
		return err
	}
	n.spare, err = newSpares()
	return err
}

func (n *Namespace) listen(a netip.Addr, port uint16) error {
	l, err := listenTCP(netip.AddrPortFrom(a, port))
	if err != nil {
		return err
	}
	n.TCP = append(n.TCP, l)
	return nil
}

// Apply puts what is special to a policy in force, before the sandbox's first process
// or while it runs. When it fails, less is reachable than the policy says, never more.
// It closes what of n.TCP and n.UDP is not wanted any more, and adds to them.
func (n *Namespace) Apply(c Config) error {
	spare := n.spare
	n.spare = nil
	defer spare.close()
	c.normalise(n.Way)
	if !n.partly && c.equal(&n.config) {
		return nil
	}
	if err := n.Way.supports(&c); err != nil {
		return err
	}
	n.partly = true
	var err error
	if spare.enough(&c) {
		err = n.change(&c, spare.hands())
	} else {
		err = n.inside(func() error { return n.change(&c, handsHere) })
	}
	if err != nil {
		return fmt.Errorf("apply the policy to a network namespace: %w", err)
	}
	n.config, n.partly = c, false
	return nil
}

// change makes the namespace what c says.
func (n *Namespace) change(c *Config, in *hands) error {
	if err := n.udpPorts(c.UDPPorts, in); err != nil {
		return err
	}
	if n.Way == PerPort { // the rules of the others suit every policy
		if err := n.tcpPorts(c.TCPPorts, in); err != nil {
			return err
		}
	}
	if err := n.holdWeb(c.RawPorts); err != nil {
		return err
	}
	return n.reroute(c, in)
}
