package names

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/hutch-sh/hutch/netfilter/internal/retry"
	"github.com/hutch-sh/hutch/netfilter/policy"
)

const (
	// maxQuery is what a query may be long: a name has at most 255 bytes, and of the
	// options that clients send none is long.
	maxQuery = 4096
	// tcpConns is how many DNS connections a sandbox may have. Resolvers use one, and
	// only where UDP was too small, which no answer of ours is.
	tcpConns = 32
	// tcpIdle ends DNS connections that say nothing, and replies that nobody takes.
	tcpIdle = 10 * time.Second
)

// Limits bound what a sandbox can make the resolver do. Zero fields are defaults.
type Limits struct {
	// Queries per second, and at once. What is more waits in the socket's buffer,
	// where the kernel drops it when that is full.
	Queries int // 5000
	// WildcardBytes is how many bytes of names below wildcards a sandbox may newly
	// learn at once, WildcardRate how many per second it gets back. A name below
	// *.example.com reaches the name servers of example.com once something connects to
	// it, and can carry data there.
	WildcardBytes int // 8192, about 300 names
	WildcardRate  int // 32, about one name
	// Denials are how many refusals are reported per second; ten times that at once.
	// Those beyond are counted in the next one that is.
	Denials int // 50
}

func (l Limits) orDefault() Limits {
	for field, value := range map[*int]int{&l.Queries: 5000, &l.WildcardBytes: 8192, &l.WildcardRate: 32,
		&l.Denials: 50} {
		if *field == 0 {
			*field = value
		}
	}
	return l
}

// Config is what a Server needs; all but Limits and Grant is required.
type Config struct {
	Table *Table
	Rules func() *policy.Rules // those in force now
	// Grant makes the address of a name that the policy lets the sandbox know reachable,
	// before the answer leaves. Without it addresses are.
	Grant func(name string, a netip.Addr) error
	// Denied is told about each lookup that was refused. It must not block.
	Denied func(Denial)
	Limits Limits
}

// Denial is a lookup that was refused.
type Denial struct {
	Client netip.AddrPort // who asked, in the sandbox
	Name   string         // as it may be printed
	Type   string         // A, AAAA, TXT, ...
	Answer string         // NXDOMAIN, SERVFAIL, or NODATA where there is none
	Rule   string
	Why    string
	// HowToAllow is a flag, or "" where nothing helps.
	HowToAllow string
	// Suppressed counts the refusals before this one that were too many to report.
	Suppressed int
}

// Server answers the DNS queries of one sandbox.
type Server struct {
	Config
	queries  *rate.Limiter
	wildcard *rate.Limiter
	denials  denials
	records  records
	conns    chan struct{}

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	open   map[io.Closer]struct{} // sockets and connections in use; nil once closed
	counts struct{ queries, denied atomic.Uint64 }
}

// NewServer makes a server that waits for sockets.
func NewServer(c Config) *Server {
	c.Limits = c.Limits.orDefault()
	s := &Server{
		Config:   c,
		queries:  rate.NewLimiter(rate.Limit(c.Limits.Queries), c.Limits.Queries),
		wildcard: rate.NewLimiter(rate.Limit(c.Limits.WildcardRate), c.Limits.WildcardBytes),
		conns:    make(chan struct{}, tcpConns),
		open:     map[io.Closer]struct{}{},
	}
	s.denials.limit = rate.NewLimiter(rate.Limit(c.Limits.Denials), 10*c.Limits.Denials)
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Counts are the queries answered so far, and those of them that were refused.
func (s *Server) Counts() (queries, denied uint64) {
	return s.counts.queries.Load(), s.counts.denied.Load()
}

// Close closes the sockets that the server was given and waits for what it runs.
func (s *Server) Close() error {
	s.stop(net.ErrClosed)
	s.mu.Lock()
	var errs []error
	for c := range s.open {
		errs = append(errs, c.Close())
	}
	s.open = nil
	s.mu.Unlock()
	s.wg.Wait()
	return errors.Join(errs...)
}

// track makes c one that Close closes and a goroutine one that it waits for. The
// returned function ends both.
func (s *Server) track(c io.Closer) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		_ = c.Close()
		return nil, false
	}
	s.open[c] = struct{}{}
	s.wg.Add(1)
	return func() {
		s.mu.Lock()
		if _, mine := s.open[c]; mine {
			delete(s.open, c)
			_ = c.Close()
		}
		s.mu.Unlock()
		s.wg.Done()
	}, true
}

// ServeUDP answers queries on pc, which it takes over, until Close. One goroutine does
// all: an answer takes microseconds, so that a flood gets one core at most, and waits.
func (s *Server) ServeUDP(pc net.PacketConn) {
	done, ok := s.track(pc)
	if !ok {
		return
	}
	defer done()
	var pace retry.Pace
	buf := make([]byte, maxQuery)
	for {
		n, from, err := pc.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !pace.Wait(s.ctx.Done()) {
				return
			}
			continue
		}
		pace.Reset()
		if s.queries.Wait(s.ctx) != nil {
			return
		}
		if reply := s.answer(buf[:n], true, addrPort(from)); reply != nil {
			// A reply that cannot be sent is one that is lost: the client asks again.
			_, _ = pc.WriteTo(reply, from)
		}
	}
}

// ServeTCP answers queries on the connections to l, which it takes over, until Close.
func (s *Server) ServeTCP(l net.Listener) {
	done, ok := s.track(l)
	if !ok {
		return
	}
	defer done()
	var pace retry.Pace
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !pace.Wait(s.ctx.Done()) {
				return
			}
			continue
		}
		pace.Reset()
		select {
		case s.conns <- struct{}{}:
		default: // a client that needs more of them is no resolver
			_ = conn.Close()
			continue
		}
		if done, ok := s.track(conn); ok {
			go func() {
				defer func() { done(); <-s.conns }()
				s.serveConn(conn)
			}()
		}
	}
}

// serveConn answers one query after the other (RFC 7766).
func (s *Server) serveConn(conn net.Conn) {
	from := addrPort(conn.RemoteAddr())
	buf := make([]byte, 2+maxQuery)
	for {
		if conn.SetDeadline(time.Now().Add(tcpIdle)) != nil {
			return
		}
		if _, err := io.ReadFull(conn, buf[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(buf))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			return
		}
		if s.queries.Wait(s.ctx) != nil {
			return
		}
		reply := s.answer(buf[:n], false, from)
		if reply == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(reply)), uint16(len(reply)))
		if _, err := conn.Write(append(framed, reply...)); err != nil {
			return
		}
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		p := a.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
