package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenTCP and listenUDP make a socket in the namespace of the calling thread. Bound
// transparently, it may have an address that is not the namespace's.
func listenTCP(at netip.AddrPort) (*net.TCPListener, error) {
	// Clients are in this very namespace: none is gone without a word.
	lc := net.ListenConfig{Control: transparent, KeepAlive: -1}
	// A subflow could come from and go to where no rule looked.
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), network("tcp", at), at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

func listenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: transparent}
	c, err := lc.ListenPacket(context.Background(), network("udp", at), at.String())
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func network(proto string, at netip.AddrPort) string {
	if at.Addr().Is6() {
		return proto + "6"
	}
	return proto + "4"
}

// transparent lets a socket have any address.
func transparent(network, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if strings.HasSuffix(network, "6") {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		err = unix.SetsockoptInt(int(fd), level, option, 1)
	})
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("set socket option IP_TRANSPARENT: %w", err)
	}
	return nil
}

// tcpPorts makes listeners for just these ports.
func (n *Namespace) tcpPorts(ports []uint16, in *hands) error {
	return perPort(&n.TCP, ports, (*net.TCPListener).Addr, func(port uint16) (*net.TCPListener, error) {
		return in.tcp(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	})
}

// udpPorts does the same for datagrams.
func (n *Namespace) udpPorts(ports []uint16, in *hands) error {
	at := netip.IPv4Unspecified()
	if n.Way.transparent() {
		at = listener4 // nothing inside has that, so that no port is taken
	}
	return perPort(&n.UDP, ports, (*net.UDPConn).LocalAddr, func(port uint16) (*net.UDPConn, error) {
		return in.udp(netip.AddrPortFrom(at, port))
	})
}

func perPort[S io.Closer](sockets *[]S, ports []uint16, addr func(S) net.Addr,
	open func(port uint16) (S, error)) error {
	var have []uint16
	*sockets = slices.DeleteFunc(*sockets, func(s S) bool {
		port := portOf(addr(s))
		have = append(have, port)
		gone := !slices.Contains(ports, port)
		if gone {
			_ = s.Close()
		}
		return gone
	})
	for _, port := range ports {
		if slices.Contains(have, port) {
			continue
		}
		s, err := open(port)
		if err != nil {
			return err
		}
		*sockets = append(*sockets, s)
	}
	return nil
}

func portOf(a net.Addr) uint16 {
	switch a := a.(type) {
	case *net.TCPAddr:
		return uint16(a.Port)
	case *net.UDPAddr:
		return uint16(a.Port)
	}
	return 0
}

// Files are what must survive hutchd for the namespace to do so, by name; they are the
// caller's.
func (n *Namespace) Files() (files map[string]*os.File, err error) {
	files = map[string]*os.File{}
	for name, file := range n.parts() {
		if files[name], err = file(); err != nil {
			closeAll(files)
			return nil, fmt.Errorf("duplicate the sockets of a network namespace: %w", err)
		}
	}
	return files, nil
}

// Names are those of Files.
func (n *Namespace) Names() (names []string) {
	for name := range n.parts() {
		names = append(names, name)
	}
	return names
}

// parts are the names of Files, each with what duplicates it.
func (n *Namespace) parts() iter.Seq2[string, func() (*os.File, error)] {
	return func(yield func(string, func() (*os.File, error)) bool) {
		ok := yield("netns/"+string(n.Way), func() (*os.File, error) { return dup(n.File) })
		for _, l := range n.TCP {
			ok = ok && yield("tcp/"+l.Addr().String(), l.File)
		}
		ok = ok && yield("dns", n.DNS.File) && yield("dns-tcp", n.DNSTCP.File)
		for _, c := range n.UDP {
			ok = ok && yield("udp/"+c.LocalAddr().String(), c.File)
		}
	}
}

func closeAll(files map[string]*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

func dup(f *os.File) (to *os.File, err error) {
	err = withFD(f, func(fd int) error {
		got, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			to = os.NewFile(uintptr(got), f.Name())
		}
		return err
	})
	return to, err
}

// Adopt makes a namespace of the files that another process kept of it, and of the
// policy that was in force. It owns the files.
func Adopt(files map[string]*os.File, c Config) (_ *Namespace, err error) {
	defer closeAll(files)
	n := &Namespace{config: c}
	defer func() {
		if err != nil {
			_ = n.Close()
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := n.adopt(name, files[name]); err != nil {
			return nil, fmt.Errorf("take over %s of a network namespace: %w", name, err)
		}
	}
	if n.File == nil || n.DNS == nil || n.DNSTCP == nil || (n.TCP == nil && n.Way != PerPort) {
		return nil, fmt.Errorf("take over a network namespace: there are only %q of it",
			slices.Sorted(maps.Keys(files)))
	}
	n.config.normalise(n.Way)
	n.routed = n.wanted(&n.config)
	if n.Way == Hold {
		if err := n.adoptSYNs(); err != nil {
			return nil, fmt.Errorf("take over a network namespace: %w", err)
		}
	}
	return n, nil
}

func (n *Namespace) adopt(name string, f *os.File) (err error) {
	switch kind, rest, _ := strings.Cut(name, "/"); kind {
	case "netns":
		n.Way = Way(rest)
		n.File, err = dup(f)
	case "tcp":
		var l *net.TCPListener
		if l, err = asListener(f); err == nil {
			n.TCP = append(n.TCP, l)
		}
	case "dns":
		n.DNS, err = asUDP(f)
	case "dns-tcp":
		n.DNSTCP, err = asListener(f)
	case "udp":
		var c *net.UDPConn
		if c, err = asUDP(f); err == nil {
			n.UDP = append(n.UDP, c)
		}
	}
	return err
}

func asListener(f *os.File) (*net.TCPListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if l, ok := l.(*net.TCPListener); ok {
		return l, nil
	}
	_ = l.Close()
	return nil, unix.EPROTOTYPE
}

func asUDP(f *os.File) (*net.UDPConn, error) {
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	if c, ok := c.(*net.UDPConn); ok {
		return c, nil
	}
	_ = c.Close()
	return nil, unix.EPROTOTYPE
}
