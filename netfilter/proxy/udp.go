package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/internal/retry"
	"github.com/hutch-sh/hutch/netfilter/policy"
)

const (
	maxDatagram = 64 << 10
	// maxPending is what a UDP flow holds while its server is looked up, in bytes. What
	// is more is dropped, as networks do.
	maxPending = 16 << 10
)

// Datagrams is a UDP socket in a sandbox's network namespace that takes datagrams for
// many addresses and knows which.
type Datagrams interface {
	// Receive reads one: who sent it, and where to.
	Receive(b []byte) (n int, from, to netip.AddrPort, err error)
	// Send sends one to the client `to`, which sees it come from `from`.
	Send(b []byte, from, to netip.AddrPort) error
	Close() error
}

// NewDatagrams makes one of a socket that is bound to a port. The kernel tells the
// address that a datagram was for, and takes it for the source of the answer: all
// addresses with an AnyIP route are local. The socket is taken over.
func NewDatagrams(conn *net.UDPConn) (Datagrams, error) {
	port := addrPort(conn.LocalAddr()).Port()
	pc := ipv4.NewPacketConn(conn)
	if err := pc.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return nil, fmt.Errorf("setsockopt IP_PKTINFO: %w", err)
	}
	return &packetInfo{pc, port}, nil
}

type packetInfo struct {
	*ipv4.PacketConn
	port uint16
}

func (s *packetInfo) Receive(b []byte) (n int, from, to netip.AddrPort, err error) {
	n, cm, src, err := s.ReadFrom(b)
	if err != nil {
		return 0, from, to, err
	}
	if cm == nil {
		return 0, from, to, errors.New("a datagram without its addresses")
	}
	dst, _ := netip.AddrFromSlice(cm.Dst)
	from = addrPort(src)
	return n, from, netip.AddrPortFrom(dst.Unmap(), s.port), nil
}

func (s *packetInfo) Send(b []byte, from, to netip.AddrPort) error {
	_, err := s.WriteTo(b, &ipv4.ControlMessage{Src: from.Addr().AsSlice()}, net.UDPAddrFromAddrPort(to))
	return err
}

// udpFlow is the datagrams between one socket of the sandbox and one destination.
type udpFlow struct {
	p        *Proxy
	socket   Datagrams
	from, to netip.AddrPort
	name     string
	counts   *counter
	ctx      context.Context
	cancel   context.CancelCauseFunc
	last     atomic.Int64 // of the last datagram, as time.Since(started)

	mu      sync.Mutex
	server  *net.UDPConn // nil until it is looked up
	ready   bool         // nothing is pending: datagrams go to the server
	over    bool
	pending [][]byte
	held    int // bytes in pending
}

type udpKey struct{ from, to netip.AddrPort }

var started = time.Now()

// ServeUDP carries the datagrams that come on socket, until the proxy is closed. It takes
// the socket over.
func (p *Proxy) ServeUDP(socket Datagrams) {
	done, ok := p.listen(socket)
	if !ok {
		return
	}
	defer done()
	r := &relay{p: p, socket: socket, flows: map[udpKey]*udpFlow{}, denied: map[udpKey]time.Time{}}
	var pace retry.Pace
	buf := make([]byte, maxDatagram)
	for {
		n, from, to, err := socket.Receive(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !pace.Wait(p.ctx.Done()) {
				return
			}
			continue
		}
		pace.Reset()
		// A flow that has just ended takes nothing: the datagram begins another one.
		for f := r.flow(from, to); f != nil && !f.send(buf[:n]); f = r.flow(from, to) {
			r.drop(udpKey{from, to}, f)
		}
	}
}

// relay is the flows of one socket.
type relay struct {
	p      *Proxy
	socket Datagrams

	mu     sync.Mutex
	flows  map[udpKey]*udpFlow
	denied map[udpKey]time.Time // when a denial was last reported
}

// again is after how long a sender that does not stop is reported again: no error tells
// it that its datagrams go nowhere.
const again = 10 * time.Second

// flow is the flow that a datagram belongs to, nil when it is dropped.
func (r *relay) flow(from, to netip.AddrPort) *udpFlow {
	key := udpKey{from, to}
	r.mu.Lock()
	f := r.flows[key]
	r.mu.Unlock()
	if f != nil {
		return f
	}
	f = &udpFlow{p: r.p, socket: r.socket, from: from, to: to}
	f.name, _ = r.p.Name(to.Addr())
	f.ctx, f.cancel = context.WithCancelCause(r.p.ctx)
	f.touch()
	if d := r.admit(f); !d.Allow {
		f.cancel(net.ErrClosed)
		r.deny(key, f.denial(d))
		return nil
	}
	r.mu.Lock()
	r.flows[key] = f
	r.mu.Unlock()
	go func() {
		defer r.remove(key, f)
		if d, refused := f.serve(); refused {
			r.deny(key, d)
		}
	}()
	return f
}

func (r *relay) deny(key udpKey, d Denial) {
	now := time.Now()
	r.mu.Lock()
	soon := now.Sub(r.denied[key]) < again
	if !soon {
		if len(r.denied) >= r.p.Limits.UDPFlows {
			clear(r.denied)
		}
		r.denied[key] = now
	}
	r.mu.Unlock()
	if !soon {
		r.p.deny(d)
	}
}

// admit makes f one of the proxy's flows before it is decided about, so that Recheck
// finds it.
func (r *relay) admit(f *udpFlow) policy.Decision {
	p := r.p
	p.mu.Lock()
	switch {
	case p.listeners == nil:
		p.mu.Unlock()
		return policy.Decision{Rule: "connection limit", Why: "the sandbox is being removed"}
	case len(p.udp) >= p.Limits.UDPFlows || !budget().take(len(p.udp)):
		p.mu.Unlock()
		return policy.Decision{Rule: "connection limit", Why: "the sandbox has as many UDP flows as it may"}
	}
	p.udp[f] = struct{}{}
	p.wg.Add(1)
	p.mu.Unlock()
	d := f.decide(p.Rules())
	if !d.Allow {
		p.forget(f)
		return d
	}
	f.counts = p.counts.of(d.Rule)
	f.counts.connections.Add(1)
	p.passed(policy.UDP, f.name, f.to, d.Rule)
	return d
}

func (p *Proxy) forget(f *udpFlow) {
	p.mu.Lock()
	delete(p.udp, f)
	p.mu.Unlock()
	budget().release()
	p.wg.Done()
}

func (r *relay) remove(key udpKey, f *udpFlow) {
	f.close()
	r.drop(key, f)
	r.p.forget(f)
}

// drop makes room for another flow of the same sockets.
func (r *relay) drop(key udpKey, f *udpFlow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flows[key] == f {
		delete(r.flows, key)
	}
}

func (f *udpFlow) decide(rules *policy.Rules) policy.Decision {
	switch a := f.to.Addr(); {
	case f.name != "":
		return rules.Connect(f.name, policy.UDP, f.to.Port())
	case f.p.Synthetic.Contains(a):
		return policy.Decision{Rule: "no such name", Why: a.String() + " was given to no name in this sandbox"}
	case a.IsLoopback() || a.IsUnspecified():
		return policy.Decision{Rule: "not redirected", Why: a.String() + " is the sandbox itself"}
	default:
		return rules.Literal(a, policy.UDP, f.to.Port())
	}
}

func (f *udpFlow) recheck(rules *policy.Rules) policy.Decision {
	f.mu.Lock()
	server := f.server
	f.mu.Unlock()
	d := f.decide(rules)
	if d.Allow && server != nil {
		d = f.p.mayDial(rules, f.name, netip.AddrPortFrom(addrPort(server.RemoteAddr()).Addr(), f.to.Port()))
	}
	return d
}

func (f *udpFlow) denial(d policy.Decision) Denial {
	return Denial{
		Client: f.from, Proto: policy.UDP, Name: f.name, Address: f.to.Addr(), Port: f.to.Port(),
		Rule: d.Rule, Why: d.Why, HowToAllow: d.HowToAllow, Errno: "no answer",
	}
}

func (f *udpFlow) revoke(d policy.Decision) {
	f.p.deny(f.denial(d))
	f.close()
}

// close ends the flow's goroutine. Any goroutine may call it.
func (f *udpFlow) close() {
	f.cancel(net.ErrClosed)
	f.mu.Lock()
	if f.server != nil {
		_ = f.server.Close()
	}
	f.pending, f.over = nil, true
	f.mu.Unlock()
}

func (f *udpFlow) touch() { f.last.Store(int64(time.Since(started))) }

// send passes a datagram on, or keeps it until the server is known. It says false when the
// flow is over.
func (f *udpFlow) send(b []byte) bool {
	f.touch()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return false
	case f.ready:
		f.pass(b)
	case f.held+len(b) <= maxPending:
		f.pending = append(f.pending, bytes.Clone(b))
		f.held += len(b)
	}
	return true
}

// pass sends to the server. What is lost is lost, as it is on any network.
func (f *udpFlow) pass(b []byte) {
	if n, err := f.server.Write(b); err == nil {
		f.counts.up.Add(uint64(n))
	}
}

// serve looks the server up and passes on its answers, until nothing came either way for
// a while.
func (f *udpFlow) serve() (d Denial, refused bool) {
	rules := f.p.Rules()
	conn, err := f.p.connect(f.ctx, rules, "udp", f.name, f.to)
	if err != nil {
		var r *refusal
		if refused = errors.As(err, &r); refused {
			d = f.denial(r.Decision)
			d.Address = r.address
		} else if f.ctx.Err() == nil {
			f.counts.failures.Add(1)
			f.fail(err)
		}
		return d, refused
	}
	f.mu.Lock()
	if f.ctx.Err() != nil {
		f.mu.Unlock()
		_ = conn.Close()
		return d, false
	}
	f.server = conn.(*net.UDPConn)
	f.mu.Unlock()
	// Recheck may have come when there was no server to ask about.
	if now := f.p.Rules(); now != rules {
		if d := f.recheck(now); !d.Allow {
			return f.denial(d), true
		}
	}
	f.mu.Lock()
	for _, b := range f.pending {
		f.pass(b)
	}
	f.pending, f.ready = nil, true
	f.mu.Unlock()
	f.touch() // looking the server up may have taken long
	f.answer()
	return d, false
}

// fail makes known that the server cannot be reached.
func (f *udpFlow) fail(err error) {
	to := Failure{Client: f.from, Proto: policy.UDP, Name: f.name, Port: f.to.Port(), Err: err, Errno: "no answer"}
	if server := f.address(); server.IsValid() {
		to.Address = server
	}
	f.p.fail(to)
}

// address is the server's, once it is known.
func (f *udpFlow) address() netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		return netip.Addr{}
	}
	return addrPort(f.server.RemoteAddr()).Addr()
}

func (f *udpFlow) answer() {
	r, err := newReceiver(f.server,
		func() []byte { return largePool.Get().(*[largeBuffer]byte)[:] }, // held for one call
		func(b []byte) { largePool.Put((*[largeBuffer]byte)(b)) })
	if err != nil {
		return
	}
	refused := false
	for idle := f.p.Limits.UDPIdle; ; {
		// One timer, of the socket, that is set again when it ends early: a datagram
		// costs no more than a look at the clock.
		end := time.Duration(f.last.Load()) + idle
		if time.Since(started) >= end || f.server.SetReadDeadline(started.Add(end)) != nil {
			return
		}
		b, n, err := r.receive()
		switch {
		case err == nil:
			f.touch()
			f.counts.down.Add(uint64(n))
			_ = f.socket.Send(b[:n], f.to, f.from) // a client that is gone is no error
			largePool.Put((*[largeBuffer]byte)(b))
		case errors.Is(err, io.EOF): // an empty datagram
			f.touch()
			_ = f.socket.Send(nil, f.to, f.from)
		case errors.Is(err, unix.ECONNREFUSED):
			if !refused { // nobody is there now; the next datagram may find somebody
				refused = true
				f.fail(err)
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
		default:
			return
		}
	}
}
