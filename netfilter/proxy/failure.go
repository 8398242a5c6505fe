package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/hold"
	"github.com/hutch-sh/hutch/netfilter/policy"
)

// Failure is an allowed connection that could not be made.
type Failure struct {
	Client  netip.AddrPort
	Proto   policy.Proto
	Name    string     // "" without one
	Address netip.Addr // that was tried, the zero Addr where there is not one
	Port    uint16
	Err     error
	Why     string
	// Errno is what the program sees: of connect(2), ECONNRESET, or what it got in its own protocol.
	Errno string
	// Suppressed counts the failures before this one that were too many to report.
	Suppressed int
}

// fail makes a failure known.
func (p *Proxy) fail(f Failure) {
	var op *net.OpError
	var lookup *net.DNSError
	if !errors.As(f.Err, &lookup) && errors.As(f.Err, &op) && op.Op == "dial" && addrPort(op.Addr).IsValid() {
		f.Address = addrPort(op.Addr).Addr()
	}
	f.Why = p.whyFailed(&f)
	p.mu.Lock()
	ok := p.failures.Allow()
	if ok {
		f.Suppressed, p.untold = p.untold, 0
	} else {
		p.untold++
	}
	p.mu.Unlock()
	if ok {
		p.Failed(f)
	}
}

// whyFailed says why a connection could not be made, as somebody would who sits at this machine.
func (p *Proxy) whyFailed(f *Failure) string {
	var lookup *net.DNSError
	if errors.As(f.Err, &lookup) && f.Name != "" {
		by := "this machine's DNS"
		if lookup.Server != "" {
			by += " (" + lookup.Server + ")"
		}
		switch {
		case lookup.IsNotFound:
			return fmt.Sprintf("%s knows no address of %s", by, f.Name)
		case lookup.IsTimeout:
			return fmt.Sprintf("%s did not answer when it was asked for %s", by, f.Name)
		}
		return fmt.Sprintf("%s failed when it was asked for %s: %s", by, f.Name, lookup.Err)
	}
	where := "the server"
	if f.Address.IsValid() {
		where = f.Address.String()
	}
	switch {
	case errors.Is(f.Err, unix.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at %s port %d: it refuses connections", where, f.Port)
	case errors.Is(f.Err, errUnanswered):
		return f.Err.Error()
	case errors.Is(f.Err, context.DeadlineExceeded), isTimeout(f.Err):
		return fmt.Sprintf("%s did not answer within %s", where, p.Limits.DialTime)
	case errors.Is(f.Err, unix.EHOSTUNREACH), errors.Is(f.Err, unix.ENETUNREACH):
		return fmt.Sprintf("this machine has no way to %s", where)
	}
	return fmt.Sprintf("the connection to %s could not be made: %v", where, f.Err)
}

// verdictOf is what becomes of the SYN of a connection that could not be made.
func verdictOf(err error) hold.Verdict {
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup): // with whatever errno of the resolver's
		return hold.NoHost
	case errors.Is(err, unix.ECONNREFUSED):
		return hold.Refuse
	case errors.Is(err, unix.ENETUNREACH):
		return hold.NoNetwork
	}
	return hold.NoHost
}

// seen is what a program sees of a connection that could not be made.
func (f *flow) seen(err error) string {
	f.mu.Lock()
	held, http := f.client == nil, f.verified == byHTTP && f.check != policy.CheckBlock && !f.renewing.Load()
	f.mu.Unlock()
	switch {
	case http:
		return "HTTP 502"
	case !held:
		return "ECONNRESET"
	}
	switch verdictOf(err) {
	case hold.Refuse:
		return "ECONNREFUSED"
	case hold.NoNetwork:
		return "ENETUNREACH"
	}
	return "EHOSTUNREACH"
}

// failed is what a connection that could not be made means for the flow.
func (f *flow) failed(err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	f.mu.Lock()
	told := f.told
	f.mu.Unlock()
	if f.ctx.Err() == nil {
		f.counts.failures.Add(1)
		if !told {
			f.p.fail(Failure{Client: f.from, Proto: policy.TCP, Name: f.name, Address: f.literal(), Port: f.dst.Port(),
				Err: err, Errno: f.seen(err)})
		}
	}
	return err
}

// literal is the address that the program connected to, unless that stands for a name.
func (f *flow) literal() netip.Addr {
	if f.name != "" {
		return netip.Addr{}
	}
	return f.dst.Addr()
}

// errUnanswered is of a connection whose program may have given up, or will before anybody knows more.
var errUnanswered = errors.New("there was no answer")

// longWait is how long a server may take before that is worth telling.
const longWait = time.Second

// Unanswered reports the connections begun since a time whose servers have not answered for a while: a program that has
// ended meanwhile did not see what would have become of them. Each is reported once.
func (p *Proxy) Unanswered(since time.Time) {
	if p.dialling.Load() == 0 {
		return
	}
	now := time.Now()
	var late []Failure
	p.mu.Lock()
	for f := range p.flows {
		f.mu.Lock()
		if waited := now.Sub(f.waits); !f.waits.IsZero() && !f.waits.Before(since) && waited >= longWait && !f.told &&
			!f.over {
			f.told = true
			late = append(late, Failure{
				Client: f.from, Proto: policy.TCP, Name: f.name, Address: f.literal(), Port: f.dst.Port(),
				Err: fmt.Errorf("%w from the server or from DNS within %s", errUnanswered,
					waited.Round(100*time.Millisecond)),
			})
		}
		f.mu.Unlock()
	}
	p.mu.Unlock()
	for _, f := range late {
		p.fail(f)
	}
}
