package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/policy"
)

// noDeadline ends a deadline.
var noDeadline time.Time

// keepAlive finds servers that are gone: a program in the sandbox cannot, it talks to us.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 15 * time.Second, Count: 4}

// dialer connects to addresses in the sandbox's place. The check sits where the address of
// the socket is final, behind the lookup and in each attempt: an answer that changes
// between two lookups, or was remembered, cannot pass it.
func (p *Proxy) dialer(rules *policy.Rules, name string) *net.Dialer {
	d := &net.Dialer{
		Timeout: p.Limits.DialTime, KeepAliveConfig: keepAlive,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("address to dial: %w", err)
			}
			if d := p.mayDial(rules, name, to); !d.Allow {
				return &refusal{Decision: d, address: to.Addr().Unmap()}
			}
			return nil
		},
	}
	d.SetMultipathTCP(false) // MPTCP sockets cannot be spliced, and few servers speak it
	return d
}

// mayDial is the policy's decision about an address that is about to be connected to, which lets no sandbox to what
// hutch itself listens on.
func (p *Proxy) mayDial(rules *policy.Rules, name string, to netip.AddrPort) policy.Decision {
	d := rules.Dial(name, to.Addr(), to.Port(), p.Own)
	if a := to.Addr().Unmap(); d.Allow && p.Ours(to.Port()) && (a.IsLoopback() || p.Own(a)) {
		return policy.Decision{Rule: "hutch's own port", Why: "hutch itself listens on port " +
			strconv.Itoa(int(to.Port())) + " of this host"}
	}
	return d
}

// connect connects to a name, or to an address where there is none.
func (p *Proxy) connect(ctx context.Context, rules *policy.Rules, network, name string, dst netip.AddrPort) (net.Conn,
	error) {
	d := p.dialer(rules, name)
	if name == "" {
		return d.DialContext(ctx, network, dst.String())
	}
	ctx, cancel := context.WithTimeout(ctx, p.Limits.DialTime)
	defer cancel()
	if addrs := policy.HostAddresses(name); addrs != nil {
		return inTurn(ctx, d, network, addrs, dst.Port())
	}
	name += "." // in full, so that the host's search domains make no other name of it
	found, err := p.lookups.Lookup(ctx, name)
	if errors.Is(err, context.DeadlineExceeded) {
		err = &net.DNSError{Err: "no answer", Name: name, IsTimeout: true}
	}
	if err != nil {
		return nil, err
	}
	for _, alias := range found.Aliases {
		if d, blocked := rules.Alias(strings.TrimSuffix(name, "."), alias, policy.Proto(network), dst.Port()); blocked {
			return nil, &refusal{Decision: d}
		}
	}
	conn, err := race(ctx, d, network, found.Addrs, dst.Port())
	if err != nil {
		p.lookups.Forget(name)
	}
	return conn, err
}

// dial connects the flow to its server, where that has not happened yet.
func (f *flow) dial() error {
	if f.server != nil {
		return nil
	}
	rules := f.p.Rules()
	conn := f.arrived()
	if conn == nil {
		var err error
		f.dials(time.Now())
		conn, err = f.p.connect(f.ctx, rules, "tcp", f.name, f.dst)
		f.dials(time.Time{})
		if err != nil {
			return f.failed(err)
		}
	} else {
		rules = nil // those that it was made by may be older
	}
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		_ = conn.Close()
		return net.ErrClosed
	}
	f.server = conn.(*net.TCPConn)
	f.mu.Unlock()
	// Recheck may have come when there was no server to ask about.
	if now := f.p.Rules(); now != rules {
		if d := f.recheck(now); !d.Allow {
			return &refusal{Decision: d}
		}
	}
	return nil
}

// arrived is the connection that was begun by dialHere, once it is there; nil without one, and where it failed.
func (f *flow) arrived() net.Conn {
	early := f.early
	if early == nil {
		return nil
	}
	f.early = nil
	defer early.Close()
	raw, err := early.SyscallConn()
	if err != nil {
		return nil
	}
	_ = early.SetWriteDeadline(time.Now().Add(f.p.Limits.DialTime))
	stop := context.AfterFunc(f.ctx, func() { _ = early.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var conn *net.TCPConn
	_ = raw.Write(func(fd uintptr) (done bool) {
		if _, err := unix.Getpeername(int(fd)); err != nil {
			failed, gerr := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
			return failed != 0 || gerr != nil
		}
		own, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			conn, _ = asConn(own)
		}
		return true
	})
	// A socket that got the port of its server for its own may be connected to itself.
	if conn == nil || addrPort(conn.LocalAddr()) == addrPort(conn.RemoteAddr()) {
		if conn != nil {
			_ = conn.Close()
		}
		return nil
	}
	return conn
}

// dials notes since when the flow waits for its server; the zero Time is that it does not.
func (f *flow) dials(since time.Time) {
	f.mu.Lock()
	f.waits = since
	f.mu.Unlock()
	if since.IsZero() {
		f.p.dialling.Add(-1)
	} else {
		f.p.dialling.Add(1)
	}
}

// addrPort is a socket's address, as IPv4 where it is that.
func addrPort(a net.Addr) netip.AddrPort {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		p := a.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// LocalDestination is where a connection was meant to go when the kernel did not change
// that: the local address of its socket.
func LocalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	a := addrPort(conn.LocalAddr())
	if !a.IsValid() {
		return a, fmt.Errorf("%v is no TCP address", conn.LocalAddr())
	}
	return a, nil
}

// OriginalDestination is where a connection was meant to go that nftables redirected:
// what connection tracking remembers. It is IPv4 only, as synthetic addresses are.
func OriginalDestination(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	const soOriginalDst = 80 // linux/netfilter_ipv4.h
	var to netip.AddrPort
	var call error
	err = raw.Control(func(fd uintptr) {
		// The structure is used for its size: the kernel writes a sockaddr_in, whose
		// port and address are in network order behind two bytes of family.
		m, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst)
		if err != nil {
			call = fmt.Errorf("getsockopt SO_ORIGINAL_DST: %w", err)
			return
		}
		b := m.Multiaddr
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
	})
	return to, errors.Join(err, call)
}

// budget is how many connections all proxies of the process may hold together: each has
// two fds, and without any the daemon can do nothing at all. It is asked for late, because
// daemons change their limit when they start.
var budget = sync.OnceValue(newFDBudget)

type fdBudget struct {
	limit uint64 // RLIMIT_NOFILE
	mu    sync.Mutex
	free  int
}

func newFDBudget() *fdBudget {
	// Go's runtime raises the soft limit, to one less than the hard one, when a program starts.
	const forOthers = 1024
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 4096
	}
	return &fdBudget{limit: limit.Cur, free: max(int(min(limit.Cur, 1<<20))-forOthers, forOthers) / 2}
}

// take counts one more connection of a sandbox that has held so many, unless that is more
// than 16 times what is free: however many sandboxes take what they can, something is
// left for the next.
func (b *fdBudget) take(held int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held > 16*b.free || b.free == 0 {
		return false
	}
	b.free--
	return true
}

// exhausted is why a sandbox that has held so many gets no more.
func (b *fdBudget) exhausted(held int) string {
	return fmt.Sprintf("the sandbox has %d connections, its share of what hutchd can hold: each takes 2 file descriptors of the %d that hutchd may have (RLIMIT_NOFILE); "+
		"a daemon that is started with a higher hard limit (ulimit -Hn, or LimitNOFILE= of its unit) holds more", held,
		b.limit)
}

func (b *fdBudget) release() {
	b.mu.Lock()
	b.free++
	b.mu.Unlock()
}
