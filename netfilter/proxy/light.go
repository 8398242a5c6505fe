package proxy

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/hold"
	"github.com/hutch-sh/hutch/netfilter/policy"
)

// light is how the loop carries a flow whose stream need show nothing, while it carries
// little. One that carries much is carried on by goroutines, with pipes, as all others are.
type light struct {
	loop *loop
	to   netip.Addr // the server's
	side [2]side
}

// side is one end of a light flow.
type side struct {
	fd   int
	id   int32 // the loop's
	over bool  // nothing more comes from there
}

// The sides.
const (
	ofClient = iota
	ofServer
)

// lightBuffer is what a light flow moves at a time; one that has as much at once is not
// light any more.
const lightBuffer = bulk

// atOnce makes a connection whose server is on this host, where connect(2) has the answer
// when it returns: dials, lets the SYN go on, accepts, and has the loop carry the flow. It
// says false where serve has to go on, which meets whatever this has met.
func (h *held) atOnce(l *loop) bool {
	f := h.flow
	rules := f.p.Rules()
	server, to := f.dialHere(rules)
	if server < 0 {
		return false
	}
	if f.begin() != nil {
		_ = unix.Close(server)
		return false
	}
	h.decide(hold.Accept)
	client := -1
	if f.check == policy.CheckNone {
		client = f.p.acceptHeld(l, h.ends)
	}
	if client < 0 {
		f.dialled(server) // somebody else accepts
	} else {
		h.stop(hold.Drop)
		f.lighten(l, client, server, to)
	}
	// As in dial.
	if now := f.p.Rules(); now != rules {
		if d := f.recheck(now); !d.Allow {
			f.revoke(d)
		}
	}
	return client >= 0
}

// dialHere connects to a server on this host, without waiting. It returns -1 where that is
// another host, is not known, refuses, or is forbidden, and where the answer is not there yet:
// then the socket is f.early, for the server may have accepted what must not be a second connection.
func (f *flow) dialHere(rules *policy.Rules) (fd int, to netip.Addr) {
	to = f.dst.Addr()
	if addrs := policy.HostAddresses(f.name); addrs != nil {
		to = addrs[0]
	} else if f.name != "" {
		to = f.p.lookups.Known(f.name + ".")
	}
	if !to.Is4() || !to.IsLoopback() && !f.p.Own(to) ||
		!f.p.mayDial(rules, f.name, netip.AddrPortFrom(to, f.dst.Port())).Allow {
		return -1, to
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, to
	}
	sa := &unix.SockaddrInet4{Port: int(f.dst.Port()), Addr: to.As4()}
	if err = unix.Connect(fd, sa); errors.Is(err, unix.EINPROGRESS) {
		err = unix.Connect(fd, sa)
	}
	if errors.Is(err, unix.EALREADY) { // softirqs are behind, on a busy machine
		f.early = os.NewFile(uintptr(fd), "connection")
		return -1, to
	}
	// A socket that got the port of its server for its own may be connected to itself.
	if own, oerr := unix.Getsockname(fd); err != nil || oerr != nil ||
		addrPortOf(own) == netip.AddrPortFrom(to, f.dst.Port()) {
		_ = unix.Close(fd)
		return -1, to
	}
	return fd, to
}

// dialled makes a socket the flow's server, for goroutines.
func (f *flow) dialled(fd int) {
	conn, err := asConn(fd)
	if err != nil {
		return // serve dials
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		_ = conn.Close()
		return
	}
	f.server = conn
}

// acceptHeld accepts the connection that was let in just now: a SYN over loopback has led to
// one when the verdict about it returns. It returns -1 when others are before it, or when it
// was accepted already.
func (p *Proxy) acceptHeld(l *loop, e ends) int {
	p.mu.Lock()
	from := p.transparent
	p.mu.Unlock()
	const most = 16 // that are others'
	for i := 0; from != nil && i < most; i++ {
		fd, sa, err := -1, unix.Sockaddr(nil), error(nil)
		if cerr := from.Control(func(from uintptr) {
			fd, sa,
				err = unix.Accept4(int(from), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		}); cerr != nil || err != nil {
			return -1
		}
		if own, err := unix.Getsockname(fd); err == nil && newEnds(addrPortOf(sa), addrPortOf(own)) == e {
			return fd
		}
		if conn, err := asConn(fd); err == nil {
			p.accept(conn)
			l.started = true
		}
	}
	return -1
}

// addrPortOf is an address of IPv4.
func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	if a, ok := sa.(*unix.SockaddrInet4); ok {
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// lighten has the loop carry the flow from now on.
func (f *flow) lighten(l *loop, client, server int, to netip.Addr) {
	c := &light{loop: l, to: to, side: [2]side{{fd: client}, {fd: server}}}
	f.mu.Lock()
	if f.over { // new rules ended it meanwhile
		f.mu.Unlock()
		_ = unix.Close(server)
		if conn, err := asConn(client); err == nil {
			f.p.accept(conn) // meets them
			l.started = true
		}
		f.p.remove(f)
		return
	}
	f.light = c
	var err error
	for i := range c.side {
		s := &c.side[i]
		_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // as package net has it
		if err == nil {
			s.id, err = l.add(s.fd, func() { f.ready(c, i) })
		}
	}
	f.mu.Unlock()
	if err != nil {
		f.endLight(true)
	}
}

// ready is the loop's: something came from one side of the flow, or it failed.
func (f *flow) ready(c *light, from int) {
	f.mu.Lock()
	if f.over || f.light != c {
		f.mu.Unlock()
		return
	}
	rest, next := c.move(from, f.counts)
	if next == heavy {
		next = f.burden(c, from, rest)
	}
	f.mu.Unlock()
	if next == ended || next == broken {
		f.endLight(next == broken)
	}
}

// endLight ends the flow, on the loop's thread.
func (f *flow) endLight(reset bool) {
	if f.end(reset) {
		f.p.remove(f)
	}
}

// What becomes of a light flow.
type fate uint8

const (
	goesOn fate = iota
	ended       // both sides in order
	broken      // what one end lost the other one must not take for an end
	heavy       // it carries much, or one end does not take it
)

// move passes on what came from one side, once. What is left of it the other side does not
// take now.
func (c *light) move(from int, count *counter) (rest []byte, _ fate) {
	src, dst := &c.side[from], &c.side[1-from]
	if src.over {
		return nil, broken // of its end the loop has told, so it has failed since
	}
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(src.fd, c.loop.bytes[:]) })
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil, goesOn
	case err != nil:
		return nil, broken
	case n == 0:
		if src.over = true; dst.over {
			return nil, ended
		}
		if c.loop.failuresOnly(src.fd, src.id) != nil || unix.Shutdown(dst.fd, unix.SHUT_WR) != nil {
			return nil, broken
		}
		return nil, goesOn
	}
	return c.pass(from, n, count)
}

// pass passes on n bytes of the loop's, which came from one side. What is left of them the other side does not take
// now.
func (c *light) pass(from, n int, count *counter) (rest []byte, _ fate) {
	sent, err := ignoringEINTR(func() (int, error) { return unix.Write(c.side[1-from].fd, c.loop.bytes[:n]) })
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return nil, broken
	}
	sent = max(sent, 0)
	count.of(from).Add(uint64(sent))
	if sent < n || n == lightBuffer {
		return bytes.Clone(c.loop.bytes[sent:n]), heavy
	}
	return nil, goesOn
}

// greeting passes on what the server has said already. Its end is left to the loop.
func (c *light) greeting(count *counter) (rest []byte, _ fate) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(c.side[ofServer].fd, c.loop.bytes[:]) })
	switch {
	case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
		return nil, goesOn
	case err != nil:
		return nil, broken
	}
	return c.pass(ofServer, n, count)
}

// of counts what comes from a side.
func (c *counter) of(side int) *atomic.Uint64 {
	if side == ofClient {
		return &c.up
	}
	return &c.down
}

// burden gives the flow to goroutines, which begin with the rest of what came from one
// side. The caller holds the flow's mutex.
func (f *flow) burden(c *light, from int, rest []byte) fate {
	for _, s := range c.side {
		c.loop.remove(s.fd, s.id)
	}
	client, err := asConn(c.side[ofClient].fd)
	c.side[ofClient].fd = -1
	if err != nil {
		return broken
	}
	server, err := asConn(c.side[ofServer].fd)
	c.side[ofServer].fd = -1
	if err != nil {
		_ = client.Close()
		return broken
	}
	f.client, f.server, f.light = client, server, nil
	c.loop.started = true
	go func() {
		defer f.p.remove(f)
		f.carryOn(c, from, rest)
	}()
	return goesOn
}

// carryOn copies until the end of the flow, where the loop has copied so far. A side that has ended is over: to tell
// the other one again fails when that has ended as well, and what it said last would be cut off.
func (f *flow) carryOn(was *light, from int, rest []byte) {
	in := &window{conn: f.client, buffers: &f.p.buffers}
	defer in.release()
	if !was.side[ofServer].over {
		var head []byte
		if from == ofServer {
			head = rest
		}
		f.copyDown(head)
	}
	var err error
	if from == ofClient {
		f.counts.up.Add(uint64(len(rest)))
		_, err = f.server.Write(rest)
	}
	if err == nil && !was.side[ofClient].over {
		err = f.copyUp(in)
	}
	f.finish(err)
}

// close closes both sides. The caller holds the flow's mutex, or is the loop and the flow is over.
func (c *light) close(reset bool) {
	c.closeSide(ofClient, reset)
	c.closeSide(ofServer, reset)
}

func (c *light) closeSide(side int, reset bool) {
	s := &c.side[side]
	if s.fd < 0 {
		return
	}
	c.loop.forget(s.fd, s.id)
	if reset {
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(s.fd)
	s.fd = -1
}
