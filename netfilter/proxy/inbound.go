package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/internal/retry"
)

// maxInbound is how many connections a port holds at a time. Who comes then is not accepted before one ends.
const maxInbound = 1024

// Dial connects to the server of a port without waiting; later, where it is not nil, must be called for the rest.
type Dial func() (conn *net.TCPConn, later Later, err error)

// Later makes what is left of a connection.
type Later func(context.Context) (*net.TCPConn, error)

// Inbound carries connections from the host to one port of a sandbox. Both sides are hostile to each other: nothing but
// bytes passes, in buffers and pipes as on the way out.
type Inbound struct {
	l     net.Listener
	dial  Dial
	token string // "" lets everybody pass

	buffers  buffers
	room     chan struct{} // a token for each connection
	accepted atomic.Int64

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	open   map[*inboundFlow]struct{}
	closed bool
}

// inboundFlow is one connection.
type inboundFlow struct {
	in       *Inbound
	client   duplex
	up, down atomic.Uint64

	mu     sync.Mutex
	server *net.TCPConn // nil before it is connected
	over   bool
}

// NewInbound serves l, which it owns, until Close. dial connects to the server inside. With a token only HTTP requests
// that have it pass.
func NewInbound(l net.Listener, token string, dial Dial) *Inbound {
	in := &Inbound{l: l, dial: dial, token: token, room: make(chan struct{}, maxInbound), open: map[*inboundFlow]struct{}{}}
	in.ctx, in.stop = context.WithCancelCause(context.Background())
	in.wg.Go(in.serve)
	return in
}

// Close ends the listener and all connections, and waits for what runs. The socket listens no more in whichever process
// it is held open.
func (in *Inbound) Close() error {
	in.stop(net.ErrClosed)
	if c, ok := in.l.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
	}
	err := in.l.Close()
	in.mu.Lock()
	in.closed = true
	for f := range in.open {
		f.abort()
	}
	in.mu.Unlock()
	in.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Counts are the connections that are open, and that were accepted.
func (in *Inbound) Counts() (open int, accepted int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.open), in.accepted.Load()
}

func (in *Inbound) serve() {
	var pace retry.Pace
	for {
		select {
		case in.room <- struct{}{}:
		case <-in.ctx.Done():
			return
		}
		conn, err := in.l.Accept()
		if err != nil {
			<-in.room
			if in.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !pace.Wait(in.ctx.Done()) {
				return
			}
			continue // no fds or no memory: the connection stays in the queue
		}
		pace.Reset()
		f := in.admit(conn)
		if f == nil {
			<-in.room
			continue
		}
		in.start(f)
	}
}

// admit makes conn a connection of the port's, from where Close finds it; nil where hutchd has no fds left for it.
func (in *Inbound) admit(conn net.Conn) *inboundFlow {
	in.mu.Lock()
	defer in.mu.Unlock()
	client, ok := conn.(duplex)
	if !ok || in.closed || !budget().take(len(in.open)) {
		_ = conn.Close()
		return nil
	}
	in.accepted.Add(1)
	f := &inboundFlow{in: in, client: client}
	in.open[f] = struct{}{}
	return f
}

func (in *Inbound) remove(f *inboundFlow) {
	_ = f.client.Close()
	if f.server != nil {
		_ = f.server.Close()
	}
	in.mu.Lock()
	delete(in.open, f)
	in.mu.Unlock()
	budget().release()
	<-in.room
}

// abort ends the connection at both ends. Who reads there sees that it was cut.
func (f *inboundFlow) abort() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.over = true
	cutOff(f.client)
	if f.server != nil {
		cutOff(f.server)
	}
}

// cutOff closes a connection by a reset, where it has those.
func cutOff(s duplex) {
	if t, ok := s.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = s.Close()
}

// start carries a connection. Most servers answer at once, and so it is connected here: another goroutine would be woken
// for that first. One that does not keeps nobody else waiting.
func (in *Inbound) start(f *inboundFlow) {
	if in.token != "" {
		in.wg.Go(func() {
			defer in.remove(f)
			f.serveHTTP()
		})
		return
	}
	later, err := f.connect()
	if err != nil {
		f.abort() // as a port that nobody listens on
		in.remove(f)
		return
	}
	in.wg.Go(func() {
		defer in.remove(f)
		if later != nil && f.finish(later) != nil {
			f.abort()
			return
		}
		f.carry()
	})
}

// serveHTTP carries a connection that must show the token first.
func (f *inboundFlow) serveHTTP() {
	head, ok := f.askToken()
	if !ok {
		return
	}
	later, err := f.connect()
	if later != nil {
		err = f.finish(later)
	}
	if err != nil {
		f.answer(502, "Bad Gateway", fmt.Sprintf("nobody listens on this port in the sandbox: %v", err))
		return
	}
	f.up.Add(uint64(len(head)))
	if _, err := f.server.Write(head); err != nil {
		f.abort()
		return
	}
	f.carry()
}

// carry copies both ways until both have ended.
func (f *inboundFlow) carry() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if f.in.buffers.copy(f.server, f.client, &f.up, unlimited) != nil {
			f.abort()
		}
	}()
	if f.in.buffers.copy(f.client, f.server, &f.down, unlimited) != nil {
		f.abort()
	}
	<-done
}

// connect connects to the server, or begins to.
func (f *inboundFlow) connect() (Later, error) {
	server, later, err := f.in.dial()
	if err != nil || later != nil {
		return later, err
	}
	return nil, f.take(server)
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
