package netns

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/nlmsg"
	"github.com/hutch-sh/hutch/netfilter/hold"
)

// family is what differs between the rules for IPv4 and IPv6.
type family struct {
	nlmsg.Chain
	daddr    uint32     // where the destination is in the header
	loopback []byte     // how destinations that are left alone begin
	listener netip.Addr // what the transparent sockets are bound to
	noHost   uint8      // code of "destination unreachable" for EHOSTUNREACH
	noNet    uint8      // for ENETUNREACH
}

var (
	inet  = family{nlmsg.Chain{Family: unix.NFPROTO_IPV4, Table: "hutch", Name: "in"}, 16, []byte{127}, listener4, 1, 0}
	inet6 = family{nlmsg.Chain{Family: unix.NFPROTO_IPV6, Table: "hutch", Name: "in"}, 24, netip.IPv6Loopback().
		AsSlice(), listener6, 3, 0}
)

func (f family) to(addr []byte) []byte { return nlmsg.Payload(nlmsg.NetworkHeader, f.daddr, addr) }

func toPort(port uint16) []byte {
	return nlmsg.Payload(nlmsg.TransportHeader, 2, binary.BigEndian.AppendUint16(nil, port))
}

// deliver gives packets to the socket at an address and port, whatever their own address.
func (f family) deliver(to netip.Addr, port uint16) []byte {
	return nlmsg.TProxy(f.Family, to.AsSlice(), port)
}

const (
	mangle = -150 // NF_IP_PRI_MANGLE, where tproxy is usual
	natOut = -100 // NF_IP_PRI_NAT_DST
)

// tproxy delivers every TCP connection but those to loopback and to the resolver. Only
// what a local route covers comes this far, so that the rules are the same for every
// policy: a transaction that takes rules away costs milliseconds (an RCU grace period).
func (f family) tproxy() []nlmsg.Message {
	proxy := f.Rule(nlmsg.Protocol(unix.IPPROTO_TCP), f.deliver(f.listener, proxyPort), nlmsg.Accept())
	messages := []nlmsg.Message{
		f.NewTable(), f.Hook("filter", unix.NF_INET_PRE_ROUTING, mangle),
		f.Rule(f.to(f.loopback), nlmsg.Accept()),
	}
	if f.Family == unix.NFPROTO_IPV6 {
		return append(messages, proxy)
	}
	messages = append(messages, f.Rule(f.to(Resolver.AsSlice()), nlmsg.Accept()))
	for _, half := range synthetic {
		messages = append(messages,
			f.Rule(f.to(half), nlmsg.Protocol(unix.IPPROTO_TCP), f.deliver(f.listener, proxyPort), nlmsg.Accept()),
			// To the socket for their own port. One without a socket is a closed port.
			f.Rule(f.to(half), nlmsg.Protocol(unix.IPPROTO_UDP), f.deliver(f.listener, nlmsg.SamePort), nlmsg.Accept()))
	}
	// Of literals, whatever resolver a program asks, ours answers.
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		messages = append(messages, f.Rule(nlmsg.Protocol(proto), toPort(dnsPort), f.deliver(Resolver, dnsPort),
			nlmsg.Accept()))
	}
	return append(messages, proxy)
}

// synthetic is how the addresses in Synthetic begin.
var synthetic = [][]byte{{198, 18}, {198, 19}}

// chain is another one of the table.
func (f family) chain(name string) nlmsg.Chain {
	c := f.Chain
	c.Name = name
	return c
}

// hold puts connections into the queue, but for what is the sandbox's own, and for the ports
// of TLS and HTTP, where the proxy looks at the stream first. The queue comes before tproxy,
// where what is let go on continues. What is not is answered when it is being delivered: in
// PREROUTING kernels before 6.17 leak the route of each packet that came over lo
// (nf_reject_fill_skb_dst).
func (f family) hold(queue []byte) []nlmsg.Message {
	begins, syns, names, answered := f.chain("begins"), f.chain("syns"), f.names(), f.chain("answered")
	const flags, finSynRstAck, syn = 13, 0x17, 0x02 // of the TCP header
	messages := []nlmsg.Message{names.New(), syns.New(), syns.Rule(f.to(f.loopback), nlmsg.Accept())}
	if f.Family == unix.NFPROTO_IPV4 {
		messages = append(messages, syns.Rule(f.to(Resolver.AsSlice()), nlmsg.Accept()))
		for _, half := range synthetic {
			messages = append(messages, syns.Rule(f.to(half), nlmsg.Goto(names.Name)))
		}
		messages = append(messages, syns.Rule(toPort(dnsPort), nlmsg.Accept()))
	}
	messages = append(append(messages, allButWeb(syns, queue)...), allButWeb(names, queue)...)
	return append(messages,
		answered.Hook("filter", unix.NF_INET_LOCAL_IN, 0),
		answered.Rule(nlmsg.Mark(uint32(hold.Accept)), nlmsg.Accept()),
		answered.Rule(nlmsg.Mark(uint32(hold.Refuse)), nlmsg.Reset()),
		answered.Rule(nlmsg.Mark(uint32(hold.NoHost)), nlmsg.Unreachable(f.noHost)),
		answered.Rule(nlmsg.Mark(uint32(hold.NoNetwork)), nlmsg.Unreachable(f.noNet)),
		begins.Hook("filter", unix.NF_INET_PRE_ROUTING, mangle-1),
		begins.Rule(nlmsg.Protocol(unix.IPPROTO_TCP), nlmsg.Bits(nlmsg.TransportHeader, flags, finSynRstAck, syn),
			nlmsg.Goto(syns.Name)))
}

// names is the chain of SYNs to names.
func (f family) names() nlmsg.Chain { return f.chain("names") }

// allButWeb holds what comes to the end of a chain.
func allButWeb(c nlmsg.Chain, queue []byte) []nlmsg.Message {
	return []nlmsg.Message{
		c.Rule(toPort(80), nlmsg.Accept()), c.Rule(toPort(443), nlmsg.Accept()), c.Rule(queue),
	}
}

// redirect does what tproxy does by address translation, for kernels without nft_tproxy.
// Where a connection was meant to go is asked of conntrack.
func (f family) redirect() []nlmsg.Message {
	return []nlmsg.Message{
		f.NewTable(), f.Hook("nat", unix.NF_INET_LOCAL_OUT, natOut),
		f.Rule(f.to(f.loopback), nlmsg.Accept()),
		f.Rule(f.to(Resolver.AsSlice()), nlmsg.Accept()),
		f.Rule(nlmsg.Protocol(unix.IPPROTO_TCP), nlmsg.Redirect(proxyPort)),
	}
}

var (
	tproxyRules   = nlmsg.NFTables(inet.tproxy()...)
	tproxyRules6  = nlmsg.NFTables(inet6.tproxy()...)
	redirectRules = nlmsg.NFTables(inet.redirect()...)
)

// queueing are the rules of the way Hold, with one of the kernel's expressions for a queue.
type queueing struct {
	queue         []byte
	rules, rules6 nlmsg.Batch
}

func newQueueing(queue []byte) *queueing {
	return &queueing{
		queue, nlmsg.NFTables(append(inet.tproxy(), inet.hold(queue)...)...),
		nlmsg.NFTables(append(inet6.tproxy(), inet6.hold(queue)...)...),
	}
}

// queueings are all of them, best first.
var queueings = []*queueing{newQueueing(nlmsg.Queue()), newQueueing(nlmsg.QueueTarget())}
