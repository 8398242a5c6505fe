// Package proxy carries the connections of one sandbox to where they are meant to go,
// as far as the policy lets them.
//
// A connection arrives on a listener in the sandbox's network namespace with the address
// that the program connected to. That address stands for a name (or for itself); the
// policy says whether it may be reached on that port, and what the stream must show
// first: a TLS server name, or the Host of every HTTP request. Then the name is looked
// up and connected to on the host, with the address checked at the very last moment, and
// bytes are copied.
//
//	accept -> destination -> policy -> first bytes -> resolve, check, dial -> copy
//
// Where the stream need show nothing, the connection may wait in a queue of the kernel's
// (ServeSYNs) until it is dialled, and is accepted then, or fails as the dialling did.
//
// Everything that is read from the sandbox's side is hostile. What a program is refused
// it sees as a reset connection, a TLS alert or an HTTP error; who runs the sandbox sees
// a Denial.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/hutch-sh/hutch/netfilter/hold"
	"github.com/hutch-sh/hutch/netfilter/internal/lookups"
	"github.com/hutch-sh/hutch/netfilter/internal/retry"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Limits bound what a sandbox can make the proxy hold and do. Zero fields are defaults.
type Limits struct {
	Connections int // 10000; the process has a limit of its own, see budget
	Held        int // 1024, of these: connections that wait for their server before they are accepted
	UDPFlows    int // 512
	// HeadTime is what a client may take from its first byte to the last that the
	// policy needs to see.
	HeadTime time.Duration // 10 s
	// FirstTime is what it may take for that first byte, where the policy needs one.
	FirstTime time.Duration // 60 s
	DialTime  time.Duration // 30 s, with all addresses of a name
	UDPIdle   time.Duration // 60 s: how long a flow without datagrams is kept
	// Denials are how many refusals, and apart from them failures, are reported per second; ten times that at once.
	Denials int // 50
}

func (l Limits) orDefault() Limits {
	for field, value := range map[*int]int{&l.Connections: 10000, &l.Held: hold.Most / 2, &l.UDPFlows: 512,
		&l.Denials: 50} {
		if *field == 0 {
			*field = value
		}
	}
	for field, value := range map[*time.Duration]time.Duration{
		&l.HeadTime: 10 * time.Second, &l.FirstTime: time.Minute, &l.DialTime: 30 * time.Second,
		&l.UDPIdle: time.Minute,
	} {
		if *field == 0 {
			*field = value
		}
	}
	return l
}

// Config is what a Proxy needs. Rules, Name, Synthetic and Denied are required.
type Config struct {
	// Rules are those in force now. After a change, call Recheck.
	Rules func() *policy.Rules
	// Name is the name that a synthetic address stands for.
	Name func(netip.Addr) (string, bool)
	// Synthetic is the range of those addresses: one that stands for nothing goes
	// nowhere, whatever the policy says about addresses.
	Synthetic netip.Prefix
	// Destination is where an accepted connection was meant to go. nil: its local
	// address, which is right for tproxy and for a listener on the port itself;
	// OriginalDestination is for redirected ones.
	Destination func(*net.TCPConn) (netip.AddrPort, error)
	// Resolver looks names up, on the host. nil: the host's own.
	Resolver *net.Resolver
	// Own says that an address is the host's. nil: OwnAddress.
	Own func(netip.Addr) bool
	// Ours says that hutch itself listens on a port of the host: no sandbox is let to it. nil: on none.
	Ours func(port uint16) bool
	// Denied is told about each refusal. It must not block.
	Denied func(Denial)
	// Passed is told about each connection, and flow of datagrams, that the policy allows,
	// by which rule, before the server is: mode learn learns from it. May be nil; must not block.
	Passed func(t api.NetTarget, rule string)
	// Ask has somebody asked about a connection that the policy asks about, and returns the answer, at the latest when
	// ctx ends. It may change the rules. nil: the answer is no.
	Ask func(ctx context.Context, t api.NetTarget, d policy.Decision) Answer
	// Failed is told about each allowed connection that could not be made. May be nil; must not block.
	Failed func(Failure)
	Limits Limits
}

// Answer is what somebody said who was asked.
type Answer uint8

// The answers.
const (
	No    Answer = iota // nobody has said yes
	Once                // this connection
	Rules               // the rules in force now say it
	Never               // No, and nobody is to be asked again
)

// Proxy is the way out of one sandbox.
type Proxy struct {
	Config
	buffers  buffers
	counts   counters
	denials  *rate.Limiter
	failures *rate.Limiter
	lookups  *lookups.Lookups
	dialling atomic.Int64 // flows whose server has not answered yet

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // one for each listener and flow

	// mu guards what follows. It is held before a flow's own mutex, never after.
	mu          sync.Mutex
	listeners   map[io.Closer]struct{} // nil once closed
	transparent syscall.RawConn        // the listener of IPv4
	flows       map[*flow]struct{}
	held        map[ends]*held
	udp         map[*udpFlow]struct{}
	suppressed  int // denials
	untold      int // failures
}

// passed tells of what the policy allows.
func (p *Proxy) passed(proto policy.Proto, name string, to netip.AddrPort, rule string) {
	p.Passed(target(proto, name, to), rule)
}

// target is where to leads. The address of a name means nothing outside.
func target(proto policy.Proto, name string, to netip.AddrPort) api.NetTarget {
	t := api.NetTarget{Proto: proto, Name: name, Port: to.Port()}
	if name == "" {
		t.Address = to.Addr().String()
	}
	return t
}

// New makes a proxy that waits for listeners.
func New(c Config) *Proxy {
	c.Limits = c.Limits.orDefault()
	if c.Destination == nil {
		c.Destination = LocalDestination
	}
	if c.Own == nil {
		c.Own = OwnAddress
	}
	if c.Ours == nil {
		c.Ours = func(uint16) bool { return false }
	}
	if c.Passed == nil {
		c.Passed = func(api.NetTarget, string) {}
	}
	if c.Failed == nil {
		c.Failed = func(Failure) {}
	}
	p := &Proxy{
		Config:    c,
		denials:   rate.NewLimiter(rate.Limit(c.Limits.Denials), 10*c.Limits.Denials),
		failures:  rate.NewLimiter(rate.Limit(c.Limits.Denials), 10*c.Limits.Denials),
		lookups:   lookups.New(c.Resolver),
		listeners: map[io.Closer]struct{}{},
		flows:     map[*flow]struct{}{},
		held:      map[ends]*held{},
		udp:       map[*udpFlow]struct{}{},
	}
	if c.Ask == nil {
		p.Ask = func(context.Context, api.NetTarget, policy.Decision) Answer { return No }
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Close ends all connections, closes the listeners and waits for what the proxy runs.
func (p *Proxy) Close() error {
	p.stop(net.ErrClosed)
	p.mu.Lock()
	var errs []error
	for l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.listeners = nil
	for f := range p.flows {
		f.abort()
	}
	for f := range p.udp {
		f.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return errors.Join(errs...)
}

// listen makes l one that Close closes, with a goroutine that it waits for.
func (p *Proxy) listen(l io.Closer) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners == nil {
		_ = l.Close()
		return nil, false
	}
	p.listeners[l] = struct{}{}
	p.wg.Add(1)
	return func() {
		p.mu.Lock()
		if _, mine := p.listeners[l]; mine {
			delete(p.listeners, l)
			_ = l.Close()
		}
		p.mu.Unlock()
		p.wg.Done()
	}, true
}

// ServeTCP carries the connections that l accepts, until l or the proxy is closed. It
// takes l over.
func (p *Proxy) ServeTCP(l *net.TCPListener) {
	done, ok := p.listen(l)
	if !ok {
		return
	}
	defer done()
	if raw, err := l.SyscallConn(); err == nil && addrPort(l.Addr()).Addr().Is4() {
		p.mu.Lock()
		p.transparent = raw
		p.mu.Unlock()
	}
	var pace retry.Pace
	for {
		conn, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// No fds or no memory: the connection stays in the queue, and the loop must
			// neither spin nor end.
			if !pace.Wait(p.ctx.Done()) {
				return
			}
			continue
		}
		pace.Reset()
		p.accept(conn)
	}
}

// accept starts a flow for conn, or goes on with the one that waits for it, or refuses it.
func (p *Proxy) accept(conn *net.TCPConn) {
	dst, err := p.Destination(conn)
	e := newEnds(addrPort(conn.RemoteAddr()), dst)
	if err == nil && p.handOver(e, conn) {
		return
	}
	f := p.newFlow(e)
	f.client = conn
	if err != nil {
		// Not redirected: somebody connected to the listener itself.
		f.refuse(&refusal{Decision: policy.Decision{Rule: "not redirected", Why: "the connection has no destination: " +
			err.Error()}})
		return
	}
	if why := p.admit(f, nil); why != "" {
		f.refuse(&refusal{Decision: policy.Decision{Rule: "connection limit", Why: why}})
		return
	}
	go func() {
		defer p.remove(f)
		f.serve()
	}()
}

func (p *Proxy) newFlow(e ends) *flow {
	f := &flow{p: p, from: e.from, dst: e.to}
	if name, ok := p.Name(f.dst.Addr()); ok {
		f.name = name
	}
	return f
}

// admit makes f one of the proxy's flows, from where Recheck and Close find it, and h, which
// may be nil, one that waits to be accepted. It says why not otherwise.
func (p *Proxy) admit(f *flow, h *held) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := len(p.flows); {
	case p.listeners == nil:
		return "the sandbox is being removed"
	case n >= p.Limits.Connections:
		return fmt.Sprintf("the sandbox has %d connections, as many as it may", n)
	case h != nil && len(p.held) >= p.Limits.Held:
		return fmt.Sprintf("%d connections of the sandbox wait for their servers, as many as may", len(p.held))
	case !budget().take(n):
		return budget().exhausted(n)
	}
	f.ctx, f.cancel = context.WithCancelCause(p.ctx)
	p.flows[f] = struct{}{}
	if h != nil {
		p.held[h.ends] = h
	}
	p.wg.Add(1)
	return ""
}

func (p *Proxy) remove(f *flow) {
	f.cancel(net.ErrClosed)
	p.mu.Lock()
	delete(p.flows, f)
	p.mu.Unlock()
	budget().release()
	p.wg.Done()
}

// Recheck ends the flows that the rules in force forbid. A flow that is only beginning
// meets either the new rules, or Recheck: it is known before it is decided about.
func (p *Proxy) Recheck() {
	rules := p.Rules()
	p.mu.Lock()
	tcp, udp := make([]*flow, 0, len(p.flows)), make([]*udpFlow, 0, len(p.udp))
	for f := range p.flows {
		tcp = append(tcp, f)
	}
	for f := range p.udp {
		udp = append(udp, f)
	}
	p.mu.Unlock()
	for _, f := range tcp {
		if d := f.recheck(rules); !d.Allow {
			f.revoke(d)
		}
	}
	for _, f := range udp {
		if d := f.recheck(rules); !d.Allow {
			f.revoke(d)
		}
	}
}
