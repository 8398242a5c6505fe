// Package lookups remembers what names have led to, for as long as DNS servers allow and a
// few seconds at most: programs connect to the same few names again and again, and each
// connection of a sandbox is a lookup on the host.
package lookups

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
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

	mu      sync.Mutex
	known   map[string]answer
	flights map[string]*flight // what is being looked up
}

// Answer is what a name has led to.
type Answer struct {
	Addrs   []netip.Addr // best first (RFC 6724)
	Aliases []string     // the names that it is another name of (CNAME), without a dot at the end
}

type answer struct {
	Answer
	until time.Time
}

// flight is a lookup that others may wait for, too. The resolver would join them by itself, and each of them but one
// would see no aliases.
type flight struct {
	done   chan struct{}
	answer Answer
	err    error
}

// New asks as r does; nil is the host's own resolver. Questions for a name that is being looked up are joined.
func New(r *net.Resolver) *Lookups {
	dial := new(net.Dialer).DialContext
	if r != nil && r.Dial != nil {
		dial = r.Dial
	}
	return &Lookups{now: time.Now, resolver: &net.Resolver{
		PreferGo: true, // the only one there is in a program without C; Dial is for that one
		Dial: func(ctx context.Context, network, server string) (net.Conn, error) {
			c, err := dial(ctx, network, server)
			if l, ok := ctx.Value(lifeKey{}).(*life); ok && err == nil {
				if network == "udp" {
					return &observed{Conn: c, life: l}, nil
				}
				return &stream{Conn: c, life: l}, nil
			}
			return c, err
		},
	}}
}

// Known returns the best address of a name that was looked up lately and is no other name of another, and the zero Addr
// otherwise. It asks nobody.
func (l *Lookups) Known(name string) netip.Addr {
	l.mu.Lock()
	a := l.known[name]
	l.mu.Unlock()
	if len(a.Addrs) == 0 || len(a.Aliases) > 0 || !l.now().Before(a.until) {
		return netip.Addr{}
	}
	return a.Addrs[0]
}

// Lookup returns what a name leads to.
func (l *Lookups) Lookup(ctx context.Context, name string) (Answer, error) {
	for {
		l.mu.Lock()
		if a := l.known[name]; l.now().Before(a.until) {
			l.mu.Unlock()
			return a.Answer, nil
		}
		f := l.flights[name]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			if l.flights == nil {
				l.flights = map[string]*flight{}
			}
			l.flights[name] = f
			l.mu.Unlock()
			l.fly(ctx, name, f)
			return f.answer, f.err
		}
		l.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		}
		// else it was the end of who asked
		if !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.answer, f.err
		}
	}
}

// fly makes a lookup for all who wait for it.
func (l *Lookups) fly(ctx context.Context, name string, f *flight) {
	start, seen := l.now(), &life{}
	var addrs []netip.Addr
	addrs, f.err = l.resolver.LookupNetIP(context.WithValue(ctx, lifeKey{}, seen), "ip", name)
	if ctx.Err() != nil && f.err != nil {
		f.err = ctx.Err()
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.flights, name); f.err == nil {
		f.answer = Answer{Addrs: addrs, Aliases: seen.names()}
		if d := seen.span(); d > 0 {
			l.remember(name, answer{f.answer, start.Add(d)})
		}
	}
	close(f.done)
}

// remember keeps an answer. l.mu is held.
func (l *Lookups) remember(name string, a answer) {
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

// lifeKey is of a life, in the context of a lookup.
type lifeKey struct{}

// life is the shortest time to live of all records that answered one lookup, and the aliases in them.
type life struct {
	mu      sync.Mutex
	known   bool // some record did; names in /etc/hosts have none
	ttl     time.Duration
	aliases []string
}

// maxAliases is how many aliases are noted: resolvers follow fewer.
const maxAliases = 64

func (l *life) alias(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name = strings.TrimSuffix(strings.ToLower(name), "."); len(l.aliases) < maxAliases &&
		!slices.Contains(l.aliases, name) {
		l.aliases = append(l.aliases, name)
	}
}

func (l *life) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.aliases)
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

// stream is a connection to a DNS server, on which each message has its length in front (RFC 1035, 4.2.2).
type stream struct {
	net.Conn
	life *life
	seen []byte // of the message under way
}

// Read reads some bytes.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.seen = append(s.seen, b[:n]...)
	for len(s.seen) >= 2 {
		size := 2 + (int(s.seen[0])<<8 | int(s.seen[1]))
		if len(s.seen) < size {
			break
		}
		observe(s.seen[2:size], s.life)
		s.seen = s.seen[size:]
	}
	return n, err
}

// observe notes the time to live of each record of an answer, and what is an alias of what.
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
		if err != nil {
			return
		}
		if r.TTL > 1<<31-1 {
			r.TTL = 0 // RFC 2181, 8
		}
		l.note(time.Duration(r.TTL) * time.Second)
		if r.Type != dnsmessage.TypeCNAME {
			if p.SkipAnswer() != nil {
				return
			}
			continue
		}
		c, err := p.CNAMEResource()
		if err != nil {
			return
		}
		l.alias(c.CNAME.String())
	}
}
