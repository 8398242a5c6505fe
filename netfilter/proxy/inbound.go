package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/netfilter/internal/retry"
)

// maxInbound is how many connections a port holds at a time. Who comes then is not accepted before one ends.
const maxInbound = 1024

// Dial connects to the server of a port without waiting. fd is a socket, the caller's; later, where it is not nil, must
// be called for the rest, and may wait.
type Dial func() (fd int, later Later, err error)

// Later makes what is left of a connection.
type Later func(context.Context) (*net.TCPConn, error)

// Inbound carries connections from the host to one port of a sandbox. Both sides are hostile to each other: nothing but
// bytes passes, in buffers and pipes as on the way out. The loop accepts, connects, and carries them while they carry
// little; goroutines do what has to be waited for.
type Inbound struct {
	loop  *loop
	fd    int // listens
	dial  Dial
	token string // "" lets everybody pass

	buffers  buffers
	accepted atomic.Int64

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // goroutines, and what the loop is at

	mu     sync.Mutex
	open   map[*inboundFlow]struct{}
	watch  int32 // the loop's number for fd; 0 while nobody is accepted
	pace   retry.Pace
	paused bool // an accept has failed, and is tried again later
	closed bool
}

// inboundFlow is one connection.
type inboundFlow struct {
	in     *Inbound
	counts counter

	mu     sync.Mutex
	light  *light       // while the loop carries it; client and server are nil then
	client duplex       // nil before a goroutine has it
	server *net.TCPConn // nil before it is connected
	over   bool
}

// NewInbound serves a socket that listens, of which it takes a duplicate, until Close. dial connects to the server
// inside. With a token only HTTP requests that have it pass.
func NewInbound(listener *os.File, token string, dial Dial) (*Inbound, error) {
	l, err := sharedLoop()
	if err != nil {
		return nil, err
	}
	fd, err := ownListener(listener)
	if err != nil {
		return nil, err
	}
	in := &Inbound{loop: l, fd: fd, dial: dial, token: token, open: map[*inboundFlow]struct{}{}}
	in.ctx, in.stop = context.WithCancelCause(context.Background())
	in.mu.Lock() // ready may be called at once
	defer in.mu.Unlock()
	if in.watch, err = l.addListener(fd, in.ready); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return in, nil
}

// ownListener duplicates a socket, of TCP or of the Unix domain, and makes it one whose connections are as package net
// has them: they inherit what is set here.
func ownListener(listener *os.File) (fd int, err error) {
	rc, err := listener.SyscallConn()
	if err != nil {
		return -1, err
	}
	if cerr := rc.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 3) }); cerr != nil ||
		err != nil {
		return -1, errors.Join(cerr, err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return -1, err
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return -1, err
	}
	switch {
	case kind != unix.SOCK_STREAM:
		return -1, unix.EPROTOTYPE
	case domain == unix.AF_INET || domain == unix.AF_INET6:
		for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15}, {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}} {
			if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
				return -1, err
			}
		}
	case domain != unix.AF_UNIX:
		return -1, unix.EPROTOTYPE
	}
	return fd, unix.SetNonblock(fd, true)
}

// Close ends the listener and all connections, and waits for what runs. The socket listens no more in whichever process
// it is held open.
func (in *Inbound) Close() error {
	in.stop(net.ErrClosed)
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		return nil
	}
	in.closed = true
	in.loop.remove(in.fd, in.watch)
	_ = unix.Shutdown(in.fd, unix.SHUT_RDWR)
	all := make([]*inboundFlow, 0, len(in.open))
	for f := range in.open {
		all = append(all, f)
	}
	in.mu.Unlock()
	for _, f := range all {
		f.abort()
	}
	in.wg.Wait()
	return unix.Close(in.fd)
}

// Counts are the connections that are open, and that were accepted.
func (in *Inbound) Counts() (open int, accepted int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.open), in.accepted.Load()
}

// ready is the loop's: somebody connects.
func (in *Inbound) ready() {
	in.mu.Lock()
	if in.closed || in.watch == 0 {
		in.mu.Unlock()
		return
	}
	if len(in.open) >= maxInbound {
		in.rest() // until one ends
		in.mu.Unlock()
		return
	}
	client, err := sys.Accept(in.fd)
	if err != nil {
		in.failed(err)
		in.mu.Unlock()
		return
	}
	in.pace.Reset()
	if !budget().take(len(in.open)) {
		_ = unix.Close(client)
		in.mu.Unlock()
		return
	}
	in.accepted.Add(1)
	f := &inboundFlow{in: in}
	in.open[f] = struct{}{}
	in.wg.Add(1) // Close waits until it is known who carries it
	in.mu.Unlock()
	defer in.wg.Done()
	in.start(f, client)
}

// rest stops accepting; in.mu is held.
func (in *Inbound) rest() {
	in.loop.remove(in.fd, in.watch)
	in.watch = 0
}

// goOn accepts again; in.mu is held.
func (in *Inbound) goOn() {
	if in.closed || in.paused || in.watch != 0 || len(in.open) >= maxInbound {
		return
	}
	var err error
	if in.watch, err = in.loop.addListener(in.fd, in.ready); err != nil {
		in.tryLater()
	}
}

// failed is about an accept; in.mu is held. Without fds or memory the connection stays in the queue.
func (in *Inbound) failed(err error) {
	for _, harmless := range []error{unix.EAGAIN, unix.EINTR, unix.ECONNABORTED} {
		if errors.Is(err, harmless) {
			return
		}
	}
	in.rest()
	in.loop.started = true // whose thread this is
	in.tryLater()
}

// tryLater accepts again after a while; in.mu is held.
func (in *Inbound) tryLater() {
	in.paused = true
	in.wg.Go(func() {
		in.pace.Wait(in.ctx.Done())
		in.mu.Lock()
		defer in.mu.Unlock()
		in.paused = false
		in.goOn()
	})
}

func (in *Inbound) remove(f *inboundFlow) {
	in.mu.Lock()
	delete(in.open, f)
	in.goOn()
	in.mu.Unlock()
	budget().release()
}

// endLater closes what the loop has carried, whose thread this is: to close both sides takes as long as to connect one,
// and whoever is ready is not to wait for it. Only Close does: f.mu is held, so that it has f's end counted, or waits
// in abort.
func (in *Inbound) endLater(f *inboundFlow, c *light, reset bool) {
	end := func() {
		c.close(reset)
		in.remove(f)
	}
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		end()
		return
	}
	in.wg.Add(1)
	in.mu.Unlock()
	// first: one that has ended its own side only waits for the other's end
	in.loop.afterNext(func() { c.closeSide(ofClient, reset) })
	in.loop.afterNext(func() {
		defer in.wg.Done()
		end()
	})
}

// abort ends the connection at both ends. Who reads there sees that it was cut.
func (f *inboundFlow) abort() {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	f.over = true
	light := f.light
	switch {
	case light != nil:
		light.close(true)
	case f.client != nil:
		cutOff(f.client)
	}
	if f.server != nil {
		cutOff(f.server)
	}
	f.mu.Unlock()
	if light != nil { // no goroutine's
		f.in.remove(f)
	}
}

// cutOff closes a connection by a reset, where it has those.
func cutOff(s duplex) {
	if t, ok := s.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = s.Close()
}

// start carries a connection, on the loop's thread. Most servers answer at once, and then the loop goes on; one that
// does not keeps nobody else waiting.
func (in *Inbound) start(f *inboundFlow, client int) {
	if in.token != "" {
		in.byGoroutine(f, client, f.serveHTTP)
		return
	}
	server, later, err := in.dial()
	switch {
	case err != nil: // as a port that nobody listens on
		cutOffFD(client)
		in.remove(f)
	case later != nil:
		in.byGoroutine(f, client, func() {
			if f.finish(later) != nil {
				f.abort()
				return
			}
			f.carry(nil, ofClient, nil)
		})
	default:
		f.lighten(client, server)
	}
}

// byGoroutine has a goroutine do the rest, which has the client of package net's then.
func (in *Inbound) byGoroutine(f *inboundFlow, client int, rest func()) {
	conn, err := asDuplex(client)
	if err != nil {
		in.remove(f)
		return
	}
	f.mu.Lock()
	if f.client = conn; f.over { // the port was closed meanwhile
		cutOff(conn)
	}
	f.mu.Unlock()
	in.loop.started = true
	in.wg.Go(func() {
		defer f.end()
		rest()
	})
}

// end is that of a connection that a goroutine has carried.
func (f *inboundFlow) end() {
	f.mu.Lock()
	f.over = true
	_ = f.client.Close()
	if f.server != nil {
		_ = f.server.Close()
	}
	f.mu.Unlock()
	f.in.remove(f)
}

// serveHTTP carries a connection that must show the token first.
func (f *inboundFlow) serveHTTP() {
	head, ok := f.askToken()
	if !ok {
		return
	}
	if err := f.connect(); err != nil {
		f.answer(502, "Bad Gateway", fmt.Sprintf("nobody listens on this port in the sandbox: %v", err))
		return
	}
	f.carry(nil, ofClient, head)
}

// carry copies both ways until both have ended. It begins with what has come from one side; was is what the loop has
// carried before, nil where it has not.
func (f *inboundFlow) carry(was *light, from int, rest []byte) {
	var up sync.WaitGroup
	// else it has been told, and a server that has ended as well cannot be again
	if was == nil || !was.side[ofClient].over {
		up.Go(func() { f.copy(ofClient, from, rest) })
	}
	if was == nil || !was.side[ofServer].over {
		f.copy(ofServer, from, rest)
	}
	up.Wait()
}

// copy copies what comes from a side, behind what has come from there already.
func (f *inboundFlow) copy(side, from int, rest []byte) {
	var src, dst duplex = f.client, f.server
	if side == ofServer {
		src, dst = dst, src
	}
	if side == from && len(rest) > 0 {
		f.counts.of(side).Add(uint64(len(rest)))
		if _, err := dst.Write(rest); err != nil {
			f.abort()
			return
		}
	}
	if f.in.buffers.copy(dst, src, f.counts.of(side), unlimited) != nil {
		f.abort()
	}
}

// connect connects to the server, and may wait.
func (f *inboundFlow) connect() error {
	fd, later, err := f.in.dial()
	if err != nil {
		return err
	}
	if later != nil {
		return f.finish(later)
	}
	server, err := asConn(fd)
	if err != nil {
		return err
	}
	return f.take(server)
}

// finish waits until the server is connected.
func (f *inboundFlow) finish(later Later) error {
	server, err := later(f.in.ctx)
	if err != nil {
		return err
	}
	return f.take(server)
}

// take makes server the connection's, unless that is over.
func (f *inboundFlow) take(server *net.TCPConn) error {
	_ = server.SetKeepAlive(false) // it is in this very kernel
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		_ = server.Close()
		return net.ErrClosed
	}
	f.server = server
	return nil
}
