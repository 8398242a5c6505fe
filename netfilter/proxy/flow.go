package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/netfilter/policy"
)

// flow is one connection of the sandbox.
type flow struct {
	p         *Proxy
	client    *net.TCPConn // nil while the connection is held
	from, dst netip.AddrPort
	name      string          // that dst stands for, "" for a literal address
	ctx       context.Context // from admit on
	cancel    context.CancelCauseFunc

	// Of the goroutine that serves the flow alone.
	counts    *counter
	rule      string
	down      chan struct{} // closed when nothing more comes from the server; nil until copying
	requests  int           // HTTP requests passed on
	renewable bool          // what copies from the server goes by renewing
	broken    error         // what ended that; good once down is closed
	renewing  atomic.Bool   // the server is to end, and another one comes after it; its requests had answers
	early     *os.File      // a socket that is still connecting to a server on this host; dial waits for it

	mu       sync.Mutex // that goroutine alone changes what follows and client, but for over
	decided  bool
	granted  bool         // somebody has allowed it, once
	check    policy.Check // once decided
	server   *net.TCPConn // nil until dialled
	light    *light       // in the place of client and server while the loop carries the flow
	verified shown
	host     string    // the last name that the stream showed, when it need not be ours
	over     bool      // both ends are closed or must be
	revoked  bool      // new rules forbid it, which is told once
	waits    time.Time // since when the server has not answered; zero otherwise
	told     bool      // that it has not
}

// shown is how a stream named its host.
type shown uint8

const (
	nothing shown = iota
	byTLS
	byHTTP
)

// covers says that a stream that showed s passes the check.
func (s shown) covers(c policy.Check) bool {
	switch c {
	case policy.CheckTLS:
		return s == byTLS
	case policy.CheckHTTP:
		return s == byHTTP
	case policy.CheckEither:
		return s != nothing
	}
	return true
}

// decide is the policy's word on the destination.
func (f *flow) decide(rules *policy.Rules) policy.Decision {
	switch a := f.dst.Addr(); {
	case f.name != "":
		return rules.Connect(f.name, policy.TCP, f.dst.Port())
	case f.p.Synthetic.Contains(a):
		return policy.Decision{Rule: "no such name", Why: a.String() + " was given to no name in this sandbox"}
	case a.IsLoopback() || a.IsUnspecified():
		// The sandbox's own loopback; only the proxy's listener leads here from it. A
		// policy that allows the host's loopback does not mean this.
		return policy.Decision{Rule: "not redirected", Why: a.String() + " is the sandbox itself"}
	default:
		return rules.Literal(a, policy.TCP, f.dst.Port())
	}
}

// recheck is the policy's word on a flow that is under way.
func (f *flow) recheck(rules *policy.Rules) policy.Decision {
	f.mu.Lock()
	decided, granted, check, server, verified, host := f.decided, f.granted, f.check, f.address(), f.verified, f.host
	f.mu.Unlock()
	d := f.decide(rules)
	switch {
	case d.Asks && !decided:
		return policy.Decision{Allow: true} // it is being asked about
	case d.Asks && granted:
		d = rules.Granted(d, f.name, f.dst.Port())
	}
	switch {
	case !d.Allow || !decided:
		return d
	case d.Check != check && !verified.covers(d.Check):
		d.Allow, d.Why = false, "the policy now asks for streams that name their host, and this one did not"
		return d
	case d.Check == policy.CheckBlock && host != "":
		if d := rules.Host(host, policy.TCP, f.dst.Port()); !d.Allow {
			return d
		}
	}
	if server.IsValid() {
		return f.p.mayDial(rules, f.name, netip.AddrPortFrom(server, f.dst.Port()))
	}
	return d
}

// address is the server's, once it is dialled. The caller holds the mutex.
func (f *flow) address() netip.Addr {
	switch {
	case f.light != nil:
		return f.light.to
	case f.server != nil:
		return addrPort(f.server.RemoteAddr()).Addr()
	}
	return netip.Addr{}
}

// serve carries the flow from its first byte to its last.
func (f *flow) serve() {
	err := f.begin()
	if err == nil {
		err = f.carry()
	}
	f.finish(err)
}

// begin decides about the flow and counts it.
func (f *flow) begin() error {
	if f.counts != nil {
		return nil // it was begun at once
	}
	d := f.settle(No)
	if d.Asks {
		d = f.settle(f.p.Ask(f.ctx, target(policy.TCP, f.name, f.dst), d))
	}
	if !d.Allow {
		return &refusal{Decision: d}
	}
	f.rule, f.counts = d.Rule, f.p.counts.of(d.Rule)
	f.counts.connections.Add(1)
	f.p.passed(policy.TCP, f.name, f.dst, d.Rule)
	return nil
}

// settle decides about the flow by the rules in force and what somebody has answered, unless that must be asked first.
func (f *flow) settle(a Answer) policy.Decision {
	// Under the mutex: Recheck sees either that nothing was decided, and then it will be
	// by the new rules, or what was.
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := f.p.Rules()
	d := f.decide(rules)
	if d.Asks && a == Once {
		d, f.granted = rules.Granted(d, f.name, f.dst.Port()), true
	}
	if f.decided = !d.Asks; f.decided {
		f.check = d.Check
	}
	return d
}

// finish ends the flow as what it was carried with did.
func (f *flow) finish(err error) {
	var r *refusal
	switch {
	case errors.As(err, &r):
		f.refuse(r)
	case err != nil:
		f.abort() // what one end lost the other one must not take for an end
	}
	if f.down != nil {
		<-f.down
	}
	f.close()
}

// attach makes conn the client of a flow that was held, unless it has ended.
func (f *flow) attach(conn *net.TCPConn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.client = conn
	}
	return !f.over
}

func (f *flow) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// carry verifies what the check asks for, dials and copies. It returns when nothing more
// is to be sent to the server.
func (f *flow) carry() error {
	in := &window{conn: f.client, buffers: &f.p.buffers}
	defer in.release()
	quiet := func() {}
	switch f.check {
	case policy.CheckNone:
		if err := f.dial(); err != nil {
			return err
		}
		f.copyDown(nil)
		return f.copyUp(in)
	case policy.CheckBlock:
		// Servers of protocols that name no host may be the first to speak.
		if err := f.dial(); err != nil {
			return err
		}
		quiet = f.copyDownEarly()
	}
	kind, err := f.classify(in)
	if err != nil {
		return err
	}
	switch kind {
	case byTLS:
		quiet()
		return f.carryTLS(in)
	case byHTTP:
		quiet()
		return f.carryHTTP(in)
	}
	return f.copyUp(in)
}

// errSilent says that nothing came on a connection that must show something.
var errSilent = errors.New("nothing was sent")

// classify tells by the first bytes what a stream is.
func (f *flow) classify(in *window) (shown, error) {
	check := f.check
	// Streams that must show nothing may take their time.
	if check != policy.CheckBlock {
		wait := f.p.Limits.FirstTime
		if check == policy.CheckEither {
			wait = f.p.Limits.HeadTime // a server that should speak first makes a program wait
		}
		_ = f.client.SetReadDeadline(time.Now().Add(wait))
	}
	for {
		if in.len() == 0 {
			if err := in.fill(); err != nil {
				return nothing, f.silent(err)
			}
			if check != policy.CheckBlock {
				_ = f.client.SetReadDeadline(time.Now().Add(f.p.Limits.HeadTime))
			}
		}
		const handshake = 22
		switch isTLS := in.bytes()[0] == handshake; {
		case isTLS && check != policy.CheckHTTP:
			return byTLS, nil
		case isTLS:
			return nothing, f.mismatch(byReset, "TLS was sent to port %d, where the policy expects HTTP", f.dst.Port())
		case check == policy.CheckTLS:
			return nothing, f.mismatch(byReset, "what was sent is not TLS")
		case check != policy.CheckBlock:
			return byHTTP, nil
		}
		switch looksLikeHTTP(in.bytes()) {
		case yes:
			return byHTTP, nil
		case no:
			return nothing, nil
		}
		if err := in.fill(); err != nil {
			return nothing, nil // the end, of a stream that was no HTTP
		}
	}
}

// silent is what becomes of a connection on which nothing came.
func (f *flow) silent(err error) error {
	switch {
	case f.check == policy.CheckBlock:
		return nil // it need not speak; copying meets the same end
	case isTimeout(err) && f.check == policy.CheckEither:
		return f.mismatch(byReset, "nothing was sent within %s: where the server speaks first, no name can be checked",
			f.p.Limits.HeadTime)
	}
	return errSilent // browsers open connections ahead: nothing was refused
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// mismatch is the refusal of a stream that does not show what the policy asks for.
func (f *flow) mismatch(how reply, format string, args ...any) *refusal {
	d := policy.Decision{Rule: f.rule, Why: fmt.Sprintf(format, args...)}
	if f.name != "" && f.check != policy.CheckBlock {
		d.HowToAllow = fmt.Sprintf("--allow tcp://%s:%d", f.name, f.dst.Port())
	}
	return &refusal{Decision: d, reply: how}
}

// showed records that the stream named its host, for Recheck.
func (f *flow) showed(s shown, host string) {
	f.mu.Lock()
	f.verified, f.host = s, host
	f.mu.Unlock()
}

// refuse tells the program and whoever runs the sandbox, and ends the flow. It is for the
// flow's own goroutine.
func (f *flow) refuse(r *refusal) {
	how := r.reply
	if f.down != nil || f.requests > 0 || f.renewing.Load() {
		// What the server has begun to say cannot be followed by words of ours.
		how = byReset
	}
	if !f.report(r, how) {
		return
	}
	switch how {
	case byAlert:
		f.say(unrecognizedName)
	case byForbidden:
		f.say(errorResponse("403 Forbidden", r.Why, r.HowToAllow))
	case byBadRequest:
		f.say(errorResponse("400 Bad Request", r.Why, r.HowToAllow))
	default:
		f.abort()
	}
}

// revoke ends a flow that new rules forbid. Any goroutine may call it.
func (f *flow) revoke(d policy.Decision) {
	f.mu.Lock()
	waits, already := f.client == nil && f.light == nil, f.revoked
	f.revoked = already || !waits
	f.mu.Unlock()
	if already { // by whoever else has met the new rules
		return
	}
	if waits { // it is accepted now, and meets the rules then
		f.abort()
		return
	}
	if f.report(&refusal{Decision: d}, byReset) {
		f.abort()
	}
}

// report makes a refusal known, unless the flow has ended already.
func (f *flow) report(r *refusal, how reply) bool {
	if f.ended() {
		return false
	}
	d := Denial{
		Client: f.from, Proto: policy.TCP, Name: f.name, Address: f.dst.Addr(), Port: f.dst.Port(),
		Rule: r.Rule, Why: r.Why, HowToAllow: r.HowToAllow, Errno: how.String(),
	}
	if r.address.IsValid() {
		d.Address = r.address
	}
	f.p.deny(d)
	return true
}

// say sends the client last words and ends the flow in order: a reset could overtake them.
func (f *flow) say(words []byte) {
	const patience = time.Second
	_ = f.client.SetDeadline(time.Now().Add(patience))
	if _, err := f.client.Write(words); err == nil && f.client.CloseWrite() == nil {
		// Bytes that nobody has read turn a close into a reset.
		b := f.p.buffers.take()
		for read := 0; read < 4*largeBuffer; {
			n, err := f.client.Read(b)
			if read += n; err != nil {
				break
			}
		}
		f.p.buffers.put(b)
	}
	f.close()
}

// abort resets both ends. Any goroutine may call it.
func (f *flow) abort() {
	if f.end(true) {
		go f.p.remove(f) // the caller may hold the proxy's mutex
	}
}

// close ends both ends in order, where that has not happened yet.
func (f *flow) close() { f.end(false) }

// end says that nobody else removes the flow, which the loop has carried.
func (f *flow) end(reset bool) (remove bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return false
	}
	f.over = true
	if f.light != nil {
		f.light.close(reset)
		f.cancel(net.ErrClosed)
		return true
	}
	if f.cancel != nil {
		f.cancel(net.ErrClosed)
	}
	for _, c := range []*net.TCPConn{f.client, f.server} {
		if c == nil {
			continue
		}
		if reset {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	return false
}
