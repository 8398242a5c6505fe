package netfilter

import (
	"net"
	"net/netip"

	"github.com/hutch-sh/hutch/netfilter/proxy"
)

// resolver is the socket of a sandbox's resolver. In mode open it gets the questions that
// were put to others, too, whose answers must seem to come from them.
//
// Questions are answered one after the other (names.Server.ServeUDP): an answer belongs to
// the question that was read last.
type resolver struct {
	*net.UDPConn
	datagrams proxy.Datagrams
	asked     netip.AddrPort
}

func answering(c *net.UDPConn) (*resolver, error) {
	d, err := proxy.NewDatagrams(c)
	return &resolver{UDPConn: c, datagrams: d}, err
}

// ReadFrom reads a question.
func (r *resolver) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	n, client, asked, err := r.datagrams.Receive(b)
	if err != nil {
		return 0, nil, err
	}
	r.asked = asked
	return n, net.UDPAddrFromAddrPort(client), nil
}

// WriteTo answers the question that was read last.
func (r *resolver) WriteTo(b []byte, to net.Addr) (int, error) {
	client, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, net.InvalidAddrError(to.String())
	}
	return len(b), r.datagrams.Send(b, r.asked, client.AddrPort())
}
