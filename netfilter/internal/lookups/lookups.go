// Package lookups remembers what names have led to, for as long as DNS servers allow and a
// few seconds at most: programs connect to the same few names again and again, and each
// connection of a sandbox is a lookup on the host.
package lookups

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// longest is how long an answer is believed that could be for longer: a server that
	// moves is found again soon.
	longest = 5 * time.Second
	// most is how many names are remembered.
	most = 256
)

// Lookups are one sandbox's: how long a lookup takes must not tell it what others connect to.
type Lookups struct {
	resolver *net.Resolver
	now      func() time.Time

	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	addrs []netip.Addr
	until time.Time
}

// New asks as r does; nil is the host's own resolver. Questions for a name that is being
// looked up are joined (net.Resolver).
func New(r *net.Resolver) *Lookups {
	dial := new(net.Dialer).DialContext
	if r != nil && r.Dial != nil {
		dial = r.Dial
	}
	return &Lookups{now: time.Now, resolver: &net.Resolver{
		PreferGo: true, // the only one there is in a program without C; Dial is for that one
		Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
			c, err := dial(ctx, network, server)
			if l, ok := ctx.Value(life{}).(*life); ok && err == nil && network == "udp" {
				return &observed{Conn: c, life: l}, nil
			}
			return c, err
		},
	}}
}

// Known returns the best address of a name that was looked up lately, and the zero Addr
// otherwise. It asks nobody.
func (l *Lookups) Known(name string) netip.Addr {
	l.mu.Lock()
	a := l.known[name]
	l.mu.Unlock()
	if len(a.addrs) == 0 || !l.now().Before(a.until) {
		return netip.Addr{}
	}
	return a.addrs[0]
}

// Lookup returns the addresses of a name, best first (RFC 6724).
func (l *Lookups) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	l.mu.Lock()
	a := l.known[name]
	l.mu.Unlock()
	start := l.now()
	if start.Before(a.until) {
		return a.addrs, nil
	}
	seen := &life{}
	addrs, err := l.resolver.LookupNetIP(context.WithValue(ctx, life{}, seen), "ip", name)
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	if d := seen.span(); d > 0 {
		l.remember(name, answer{addrs, start.Add(d)})
	}
	return addrs, nil
}

func (l *Lookups) remember(name string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) >= most || l.known == nil {
		l.known = map[string]answer{} // who needs so many names at once has no use for it
	}
	l.known[name] = a
}

// Forget makes the next Lookup ask: nothing answers at the addresses of a name.
func (l *Lookups) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, name)
}

// life is the shortest time to live of all records that answered one lookup. As a value of
// its context, it is its own key.
type life struct {
	mu    sync.Mutex
	known bool // some record did; names in /etc/hosts have none
	ttl   time.Duration
}

func (l *life) note(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || ttl < l.ttl {
		l.known, l.ttl = true, ttl
	}
}

func (l *life) span() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.ttl, longest)
}

// observed is a socket to a DNS server. net.Resolver tells nobody how long an answer holds.
// What it will not take for an answer can only make that shorter.
type observed struct {
	net.Conn
	life *life
}

// Read reads a message.
func (o *observed) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	if err == nil {
		observe(b[:n], o.life)
	}
	return n, err
}

// ReadFrom and WriteTo say that it is a socket of datagrams: net.Resolver puts a length
// before each message on others. It does not call them.
func (o *observed) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := o.Read(b)
	return n, o.RemoteAddr(), err
}

// WriteTo sends a message to the server.
func (o *observed) WriteTo(b []byte, _ net.Addr) (int, error) { return o.Write(b) }

// observe notes the time to live of each record of an answer.
func observe(message []byte, l *life) {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil || p.SkipAllQuestions() != nil {
		return
	}
	if h.Truncated {
		l.note(0) // the whole of it comes by TCP
	}
	for {
		r, err := p.AnswerHeader()
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		if r.TTL > 1<<31-1 {
			r.TTL = 0 // RFC 2181, 8
		}
		l.note(time.Duration(r.TTL) * time.Second)
	}
}
