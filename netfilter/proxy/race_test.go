package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRace: whichever family answers is taken, the better one first, and the first failure
// is told when none does.
func TestRace(t *testing.T) {
	four, six := netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()
	server := serve(t, "127.0.0.1:0", func(*net.TCPConn) {})
	silent := make(chan struct{})
	defer close(silent)
	// dialer makes addresses of IPv6 fail, or never answer.
	dialer := func(six error) *net.Dialer {
		return &net.Dialer{ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			if !strings.HasPrefix(address, "[") || six == nil {
				return nil
			}
			if errors.Is(six, unix.ETIMEDOUT) {
				select {
				case <-ctx.Done():
				case <-silent:
				}
			}
			return six
		}}
	}
	try := func(patience time.Duration, d *net.Dialer, port uint16, addrs ...netip.Addr) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return race(ctx, d, "tcp", addrs, port)
	}
	for _, tc := range []struct {
		what  string
		six   error
		addrs []netip.Addr
	}{
		{"the better one answers", unix.ETIMEDOUT, []netip.Addr{four, six}},
		{"the better one fails", unix.EHOSTUNREACH, []netip.Addr{six, four}},
		{"the better one is silent", unix.ETIMEDOUT, []netip.Addr{six, four}},
		{"one of a family fails", nil, []netip.Addr{netip.MustParseAddr("127.0.0.9"), four}},
	} {
		conn, err := try(patience, dialer(tc.six), server.Port(), tc.addrs...)
		if err != nil {
			t.Errorf("%s: %v", tc.what, err)
			continue
		}
		if at := addrPort(conn.RemoteAddr()); at.Addr() != four {
			t.Errorf("%s: connected to %s", tc.what, at)
		}
		_ = conn.Close()
	}
	if _, err := try(patience, dialer(unix.EHOSTUNREACH), 1, six, four); !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("all fail: %v, want the first failure", err)
	}
	if _, err := try(50*time.Millisecond, dialer(unix.ETIMEDOUT), 1, six); err == nil {
		t.Error("connected to an address that is silent")
	}
	if _, err := try(50*time.Millisecond, dialer(unix.ETIMEDOUT), 1, six, four); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("nothing in time: %v", err)
	}
}
