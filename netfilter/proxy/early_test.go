package proxy

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDialHereEarly: a connection whose server does not answer at once is waited for. It was made
// a second time, and the server met one that nobody used.
func TestDialHereEarly(t *testing.T) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l)
	// The queue of a backlog of 0 holds one connection; further SYNs are dropped, and come again in a second.
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(l)
	if err != nil {
		t.Fatal(err)
	}
	to := addrPortOf(sa)
	rules := compile(t, allow())
	p := &Proxy{Config: Config{Limits: Limits{}.orDefault(), Own: OwnAddress, Ours: func(uint16) bool { return false }}}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for _, ends := range []bool{false, true} {
		f := &flow{p: p, dst: to, ctx: ctx}
		first, _ := f.dialHere(rules)
		if first < 0 {
			t.Fatal("the first connection was not made at once")
		}
		if fd, _ := f.dialHere(rules); fd >= 0 || f.early == nil {
			t.Fatalf("the second connection: fd %d, early %v", fd, f.early)
		}
		if ends {
			cancel(nil)
		} else {
			accepted, _, err := unix.Accept(l)
			if err != nil {
				t.Fatal(err)
			}
			_ = unix.Close(accepted)
		}
		conn := f.arrived()
		if ends != (conn == nil) || f.early != nil {
			t.Fatalf("arrived: %v, early %v", conn, f.early)
		}
		if conn != nil {
			if got := addrPort(conn.RemoteAddr()); got != to {
				t.Errorf("connected to %v, not %v", got, to)
			}
			accepted, from, err := unix.Accept(l)
			if err != nil || addrPortOf(from) != addrPort(conn.LocalAddr()) {
				t.Errorf("accepted %v, %v; want the one connection from %v", from, err, conn.LocalAddr())
			}
			_ = unix.Close(accepted)
			_ = conn.Close()
		}
		_ = unix.Close(first)
	}
}
