package proxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// headStart is how long the addresses of one family are tried alone (RFC 8305, 5).
	headStart = 300 * time.Millisecond
	// leastPatience is what each address gets at least, where the time is shared out.
	leastPatience = 2 * time.Second
)

type attempt struct {
	conn net.Conn
	err  error
}

// race connects to the first address that answers, as net.Dialer does for names: those of
// the best one's family in turn, and a little later those of the other beside them. ctx has
// a deadline.
func race(ctx context.Context, d *net.Dialer, network string, addrs []netip.Addr, port uint16) (net.Conn, error) {
	best := addrs[0].Is4()
	other := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() != best })
	if other < 0 || network != "tcp" {
		return inTurn(ctx, d, network, addrs, port)
	}
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Is4() == best {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	attempts := make(chan attempt)
	start := func(addrs []netip.Addr) {
		conn, err := inTurn(ctx, d, network, addrs, port)
		select {
		case attempts <- attempt{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close() // too late
			}
		}
	}
	go start(first)
	later := time.NewTimer(headStart)
	defer later.Stop()
	running, failed := 1, error(nil)
	for {
		select {
		case <-later.C:
		case a := <-attempts:
			if a.err == nil {
				return a.conn, nil
			}
			running--
			if failed == nil {
				failed = a.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if second != nil {
			go start(second)
			second = nil
			running++
		}
		if running == 0 {
			return nil, failed
		}
	}
}

// inTurn connects to one address after the other, and fails as the first one did.
func inTurn(ctx context.Context, d *net.Dialer, network string, addrs []netip.Addr, port uint16) (net.Conn, error) {
	end, _ := ctx.Deadline()
	var failed error
	for i, a := range addrs {
		one := *d
		one.Timeout = max(time.Until(end)/time.Duration(len(addrs)-i), leastPatience)
		conn, err := one.DialContext(ctx, network, netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		if failed == nil {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}
