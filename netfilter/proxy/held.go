package proxy

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/netfilter/hold"
	"github.com/hutch-sh/hutch/netfilter/internal/retry"
	"github.com/hutch-sh/hutch/netfilter/policy"
)

// ends are the addresses of both ends of a connection, as the sandbox sees them.
type ends struct{ from, to netip.AddrPort }

func newEnds(from, to netip.AddrPort) ends {
	plain := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	return ends{plain(from), plain(to)}
}

// held is a connection that is not accepted before there is one to its server. Its flow is
// one of the proxy's all the time, without a client at first.
type held struct {
	ends
	flow    *flow
	queue   *hold.Queue
	arrived chan *net.TCPConn // room for one, which is put there under the proxy's mutex

	mu      sync.Mutex
	packet  uint32 // the last SYN's
	decided bool
	verdict hold.Verdict // once decided
	last    time.Time    // when that SYN came
	gone    *time.Timer  // ends the wait for the next one; nil while the connection is made at once
	over    bool         // nothing is waited for
	givenUp bool
}

// A program that waits sends its SYN again: after 1 s (TCP_TIMEOUT_INIT), then after the
// same time or twice that. One that is later than slack has given up: the kernel tells
// nobody of a socket that is closed in SYN_SENT.
const (
	firstAgain = time.Second
	slack      = time.Second
)

// ServeSYNs dials for connections that are not accepted yet, those whose streams need show
// nothing first, until q or the proxy is closed. It takes q over.
func (p *Proxy) ServeSYNs(q *hold.Queue) {
	var pace retry.Pace
	stop, err := p.watch(q)
	for err != nil { // there are no fds
		if !pace.Wait(p.ctx.Done()) {
			_ = q.Close()
			return
		}
		stop, err = p.watch(q)
	}
	defer stop()
	if done, ok := p.listen(q); ok {
		<-p.ctx.Done()
		done()
	}
}

// watch has the loop read the queue until stop.
func (p *Proxy) watch(q *hold.Queue) (stop func(), err error) {
	l, err := sharedLoop()
	if err != nil {
		return nil, err
	}
	fd, err := q.Detach()
	if err != nil {
		return nil, err
	}
	id, err := l.add(fd, func() {
		if syn, ok := q.Poll(); ok {
			p.hold(l, q, syn)
		}
	})
	return func() { l.remove(fd, id) }, err
}

// hold starts a flow for the connection that a SYN begins. What must show its name goes on as
// it would without a queue.
func (p *Proxy) hold(l *loop, q *hold.Queue, syn hold.SYN) {
	e := newEnds(syn.From, syn.To)
	p.mu.Lock()
	h := p.held[e]
	p.mu.Unlock()
	if h != nil {
		h.again(syn.ID)
		return
	}
	f, asks := p.newFlow(e), false
	switch d := f.decide(p.Rules()); {
	case d.Asks: // goes on below, without an answer yet
		asks = true
	case !syn.To.IsValid(), d.Allow && !dialsFirst(d.Check):
		_ = q.Decide(syn.ID, hold.Accept) // fails when q is closed
		return
	case !d.Allow:
		l.refuse(f, q, syn.ID, d, hold.NoHost)
		return
	}
	h = &held{ends: e, flow: f, queue: q, arrived: make(chan *net.TCPConn, 1), packet: syn.ID, last: time.Now()}
	if why := p.admit(f, h); why != "" {
		l.refuse(f, q, syn.ID, policy.Decision{Rule: "connection limit", Why: why}, hold.Refuse)
		return
	}
	if !asks && h.atOnce(l) {
		return
	}
	h.mu.Lock()
	h.gone = time.AfterFunc(firstAgain+slack, h.giveUp) // to set a timer may wake a thread
	h.mu.Unlock()
	l.started = true
	go func() {
		defer p.remove(f)
		h.serve()
	}()
}

// refuse tells of a refusal, and then the program. How long those whom it tells take is not the
// loop's time.
func (l *loop) refuse(f *flow, q *hold.Queue, packet uint32, d policy.Decision, v hold.Verdict) {
	how := byUnreachable
	if v == hold.Refuse {
		how = byRefusing
	}
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.p.listeners == nil {
		return // with the queue the packet goes
	}
	l.started = true
	f.p.wg.Go(func() {
		f.report(&refusal{Decision: d}, how)
		_ = q.Decide(packet, v) // fails when q is closed
	})
}

// dialsFirst says that a connection with this check is dialled before it has sent anything.
func dialsFirst(c policy.Check) bool { return c == policy.CheckNone || c == policy.CheckBlock }

// serve carries the flow from its SYN to its end.
func (h *held) serve() {
	f := h.flow
	defer func() {
		if f.early != nil { // refused before it was asked for
			_ = f.early.Close()
		}
	}()
	err := f.begin()
	if err == nil && dialsFirst(f.check) {
		err = f.dial()
	}
	var r *refusal
	switch {
	case errors.As(err, &r):
		v := hold.NoHost
		if !f.report(r, byUnreachable) {
			v = hold.Accept // new rules have ended it: they say so when it is accepted
		}
		h.stop(v)
		f.abort()
	case err != nil:
		h.stop(h.failed(err))
		f.abort()
	case h.letIn():
		f.finish(f.carry())
	default:
		f.abort()
	}
}

// failed is what becomes of the SYN of a connection that could not be made.
func (h *held) failed(err error) hold.Verdict {
	h.mu.Lock()
	givenUp := h.givenUp
	h.mu.Unlock()
	switch {
	case givenUp:
		return hold.Drop
	case h.flow.ended():
		return hold.Accept // rules that are new forbid it, and say so when it is accepted
	}
	return verdictOf(err)
}

// letIn lets the SYN go on and waits for what is accepted then. It says false when the
// client has given up, or the flow has ended.
func (h *held) letIn() bool {
	h.decide(hold.Accept)
	var conn *net.TCPConn
	select {
	case conn = <-h.arrived:
	case <-h.flow.ctx.Done():
	}
	h.stop(hold.Drop)
	if conn == nil {
		select {
		case conn = <-h.arrived: // it came at the very end
		default:
			return false
		}
	}
	if !h.flow.attach(conn) {
		h.flow.p.accept(conn) // meets the rules that ended the flow
		return false
	}
	return true
}

// decide gives a verdict on the last SYN and on those that still come.
func (h *held) decide(v hold.Verdict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decided, h.verdict = true, v
	_ = h.queue.Decide(h.packet, v) // fails when the queue is closed
}

// stop makes the next SYN begin a connection of its own, and gives the verdict on the last
// one when there is none.
func (h *held) stop(v hold.Verdict) {
	p := h.flow.p
	p.mu.Lock()
	if p.held[h.ends] == h {
		delete(p.held, h.ends)
	}
	p.mu.Unlock()
	h.mu.Lock()
	h.over = true
	if h.gone != nil {
		h.gone.Stop()
	}
	decided := h.decided
	h.mu.Unlock()
	if !decided {
		h.decide(v)
	}
}

// again is a SYN that was sent again, or one of another connection with the same ends: the
// last one is the one that counts.
func (h *held) again(packet uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.decided {
		_ = h.queue.Decide(packet, h.verdict)
	} else {
		_ = h.queue.Decide(h.packet, hold.Drop)
		h.packet = packet
	}
	if !h.over {
		now := time.Now()
		h.gone.Reset(max(2*now.Sub(h.last), firstAgain) + slack)
		h.last = now
	}
}

// giveUp ends the wait for a client that is gone.
func (h *held) giveUp() {
	h.mu.Lock()
	h.givenUp = !h.over
	givenUp := h.givenUp
	h.mu.Unlock()
	if givenUp {
		h.flow.abort()
	}
}

// handOver gives an accepted connection to the flow that waits for it.
func (p *Proxy) handOver(e ends, conn *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[e]
	if h == nil {
		return false
	}
	delete(p.held, e)
	h.arrived <- conn
	return true
}
