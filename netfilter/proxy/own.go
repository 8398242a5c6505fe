package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// OwnAddress says whether the kernel would deliver a packet to a to this host itself: a
// is an address of one of its interfaces, or in a range that is routed to it. It asks for
// the route, which takes microseconds and is never out of date, and says yes when it
// cannot ask.
func OwnAddress(a netip.Addr) bool {
	kind, err := routeType(a.Unmap().WithZone(""))
	if err != nil {
		return true
	}
	switch kind {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST, unix.RTN_MULTICAST:
		return true
	}
	return false
}

// routeType is the type of the route to a (rtnetlink(7), RTM_GETROUTE); RTN_UNSPEC when
// there is none.
func routeType(a netip.Addr) (uint8, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, fmt.Errorf("netlink socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeRequest(a), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for the route to %s: %w", a, err)
	}
	// The kernel has answered before sendto returns.
	reply := make([]byte, 4096)
	n, err := ignoringEINTR(func() (int, error) {
		n, _, err := unix.Recvfrom(fd, reply, unix.MSG_DONTWAIT)
		return n, err
	})
	if err != nil {
		return 0, fmt.Errorf("receive the route to %s: %w", a, err)
	}
	return parseRoute(reply[:n])
}

// routeRequest is nlmsghdr, rtmsg, and one attribute RTA_DST, in the host's byte order.
func routeRequest(a netip.Addr) []byte {
	addr, order := a.AsSlice(), binary.NativeEndian
	family := uint8(unix.AF_INET6)
	if a.Is4() {
		family = unix.AF_INET
	}
	length := unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr + len(addr)
	m := order.AppendUint32(make([]byte, 0, length), uint32(length))
	m = order.AppendUint16(m, unix.RTM_GETROUTE)
	m = order.AppendUint16(m, unix.NLM_F_REQUEST)
	m = order.AppendUint32(m, 1) // sequence
	m = order.AppendUint32(m, 0) // port: the kernel knows it
	m = append(m, family, uint8(a.BitLen()), 0, 0, 0, 0, 0, 0)
	m = order.AppendUint32(m, 0) // flags
	m = order.AppendUint16(m, uint16(unix.SizeofRtAttr+len(addr)))
	m = order.AppendUint16(m, unix.RTA_DST)
	return append(m, addr...)
}

func parseRoute(m []byte) (uint8, error) {
	if len(m) < unix.SizeofNlMsghdr+4 {
		return 0, fmt.Errorf("a route of %d bytes", len(m))
	}
	switch kind := binary.NativeEndian.Uint16(m[4:]); kind {
	case unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])))
		switch errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES:
			// No route, or one that prohibits: connect fails by itself.
			return unix.RTN_UNSPEC, nil
		}
		return 0, errno
	case unix.RTM_NEWROUTE:
		const typeAt = unix.SizeofNlMsghdr + 7 // rtm_type
		if len(m) < unix.SizeofNlMsghdr+unix.SizeofRtMsg {
			return 0, fmt.Errorf("a route of %d bytes", len(m))
		}
		return m[typeAt], nil
	default:
		return 0, fmt.Errorf("message %d instead of a route", kind)
	}
}
