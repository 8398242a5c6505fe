package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
)

// loopback is the index of lo, the first interface of each namespace.
const loopback = 1

var localhost = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// route builds one route. A local one makes every address of the prefix the
// namespace's own (AnyIP). Replies go to 127.0.0.1 and not to the address itself: a
// client whose port happens to be the one it connects to would reach itself.
func route(kind uint8, to netip.Prefix) nlmsg.Message {
	family, table, attrs := uint8(unix.AF_INET), uint8(unix.RT_TABLE_MAIN), []byte(nil)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if to.Bits() > 0 {
		attrs = nlmsg.Attr(unix.RTA_DST, to.Masked().Addr().AsSlice())
	}
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if kind == unix.RTN_LOCAL {
		table, scope = unix.RT_TABLE_LOCAL, unix.RT_SCOPE_HOST // looked up before main
		attrs = append(attrs, nlmsg.Attr(unix.RTA_OIF, nlmsg.U32(loopback))...)
		if family == unix.AF_INET {
			attrs = append(attrs, nlmsg.Attr(unix.RTA_PREFSRC, localhost.AsSlice())...)
		}
	}
	// struct rtmsg (linux/rtnetlink.h).
	body := []byte{family, uint8(to.Bits()), 0, 0, table, unix.RTPROT_STATIC, scope, kind, 0, 0, 0, 0}
	return nlmsg.Message{
		Kind: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		Body: append(body, attrs...),
	}
}

// gone is route's opposite.
func gone(kind uint8, to netip.Prefix) nlmsg.Message {
	m := route(kind, to)
	m.Kind, m.Flags = unix.RTM_DELROUTE, 0
	return m
}

// up brings lo up, and with it 127.0.0.1 and ::1.
func up() nlmsg.Message {
	// struct ifinfomsg (linux/rtnetlink.h).
	body := []byte{unix.AF_UNSPEC, 0, 0, 0}
	for _, v := range []uint32{loopback, unix.IFF_UP, unix.IFF_UP} {
		body = binary.NativeEndian.AppendUint32(body, v)
	}
	return nlmsg.Message{Kind: unix.RTM_NEWLINK, Body: body}
}

var (
	anywhere4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	anywhere6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

var (
	justLoopback = nlmsg.Route(up())
	// namesOnly answers literals with EACCES in the kernel, at once.
	namesOnly  = nlmsg.Route(up(), route(unix.RTN_LOCAL, Synthetic), route(unix.RTN_PROHIBIT, anywhere4))
	namesOnly6 = nlmsg.Route(route(unix.RTN_PROHIBIT, anywhere6))
)

// send6 sends a batch about IPv6, which a kernel may not have or have turned off:
// there is no way out either way, only the errno is another.
func send6(send func(nlmsg.Batch) error, b nlmsg.Batch) error {
	err := send(b)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	return err
}

// wanted are the prefixes besides Synthetic that are to come to the proxy.
func (n *Namespace) wanted(c *Config) []netip.Prefix {
	all := c.CIDRs
	if c.Open {
		all = append(all[:len(all):len(all)], anywhere4, anywhere6)
	}
	var list []netip.Prefix
	for _, p := range all {
		p = p.Masked()
		a := p.Addr()
		// The sandbox's own loopback stays its own, and multicast is no destination of
		// connections. What lies in Synthetic has its route.
		if a.IsLoopback() || a.IsMulticast() || (Synthetic.Contains(a) && p.Bits() >= Synthetic.Bits()) ||
			(a.Is6() && !n.Way.transparent()) {
			continue
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// reroute changes the routes from what they are to what c wants. Those that go come first: a
// failure leaves fewer.
func (n *Namespace) reroute(c *Config, in *hands) error {
	want := n.wanted(c)
	change := func(m nlmsg.Message) error {
		send := in.route
		if m.Body[0] == unix.AF_INET6 {
			send = func(b nlmsg.Batch) error { return send6(in.route, b) }
		}
		if err := send(nlmsg.Route(m)); err != nil {
			return fmt.Errorf("routes of literal addresses: %w", err)
		}
		return nil
	}
	for _, p := range slices.Clone(n.routed) {
		if slices.Contains(want, p) {
			continue
		}
		if err := change(gone(unix.RTN_LOCAL, p)); err != nil {
			return err
		}
		n.routed = slices.DeleteFunc(n.routed, func(q netip.Prefix) bool { return q == p })
	}
	for _, p := range want {
		if slices.Contains(n.routed, p) {
			continue
		}
		if err := change(route(unix.RTN_LOCAL, p)); err != nil {
			return err
		}
		n.routed = append(n.routed, p)
	}
	return nil
}
