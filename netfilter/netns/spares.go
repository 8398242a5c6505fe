package netns

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
)

// hands are what changes a namespace.
type hands struct {
	route func(nlmsg.Batch) error
	tcp   func(netip.AddrPort) (*net.TCPListener, error)
	udp   func(netip.AddrPort) (*net.UDPConn, error)
}

// handsHere change the namespace of the calling thread.
var handsHere = &hands{route: nlmsg.Batch.Send, tcp: listenTCP, udp: listenUDP}

// spares are sockets that were made in a namespace ahead, with which any thread can change
// it: to enter one takes a thread of its own and half a millisecond. They are used once: an
// idle sandbox has no fds for what may never come.
type spares struct {
	route *nlmsg.Socket
	udp   *os.File // without a port
}

// newSpares makes them in the namespace of the calling thread.
func newSpares() (_ *spares, err error) {
	s := &spares{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.route, err = nlmsg.Open(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for datagrams: %w", err)
	}
	s.udp = os.NewFile(uintptr(fd), "udp")
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return nil, fmt.Errorf("set socket option IP_TRANSPARENT: %w", err)
	}
	return s, nil
}

// enough says that they suffice for a namespace that has no ports yet.
func (s *spares) enough(c *Config) bool {
	return s != nil && len(c.TCPPorts) == 0 && len(c.RawPorts) == 0 && len(c.UDPPorts) <= 1
}

func (s *spares) hands() *hands { return &hands{route: s.route.Send, udp: s.bind} }

// bind gives the socket for datagrams its address.
func (s *spares) bind(at netip.AddrPort) (c *net.UDPConn, err error) {
	err = withFD(s.udp, func(fd int) error {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	})
	if err != nil {
		return nil, fmt.Errorf("bind to %s: %w", at, err)
	}
	return asUDP(s.udp)
}

func (s *spares) close() {
	if s == nil {
		return
	}
	if s.route != nil {
		s.route.Close()
	}
	if s.udp != nil {
		_ = s.udp.Close()
	}
}
