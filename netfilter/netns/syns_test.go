package netns

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/hold"
)

// answer decides about each SYN by the port that it is for, and returns what came.
func answer(t *testing.T, n *Namespace, verdicts map[uint16]hold.Verdict) (came func() []netip.AddrPort) {
	t.Helper()
	var mu sync.Mutex
	var all []netip.AddrPort
	go func() {
		for {
			syn, err := n.SYNs.Next()
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			all = append(all, syn.To)
			mu.Unlock()
			if err := n.SYNs.Decide(syn.ID, verdicts[syn.To.Port()]); err != nil {
				t.Error(err)
			}
		}
	}()
	return func() []netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func withQueue(t *testing.T, c Config) *Namespace {
	t.Helper()
	n, err := New(Hold)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Apply(c); err != nil {
		t.Fatal(err)
	}
	accept(t, n)
	return n
}

var verdicts = map[uint16]hold.Verdict{
	1000: hold.Accept, 1001: hold.Refuse, 1002: hold.NoHost, 1003: hold.NoNetwork, 80: hold.Refuse, 443: hold.Refuse,
}

// TestHold: what is held gets each answer, over and over, and what is not held none.
func TestHold(t *testing.T) {
	n := withQueue(t, Config{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}})
	came := answer(t, n, verdicts)
	var want []netip.AddrPort
	for range 3 {
		for _, a := range []string{"198.18.0.9", "198.19.9.9", "10.1.2.3", "fd00::7"} {
			for port, errno := range map[uint16]error{1000: nil, 1001: unix.ECONNREFUSED, 1002: unix.EHOSTUNREACH,
				1003: unix.ENETUNREACH} {
				to := netip.AddrPortFrom(netip.MustParseAddr(a), port)
				want = append(want, to)
				if errno == nil {
					reach(t, n, to.String())
				} else {
					checkErrno(t, n, "tcp", to.String(), errno)
				}
			}
		}
	}
	if got := came(); !slices.Equal(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
	// The web, the sandbox's own and the resolver.
	for _, to := range []string{"198.18.0.9:80", "198.18.0.9:443", "10.1.2.3:443", "[fd00::7]:80"} {
		reach(t, n, to)
	}
	checkErrno(t, n, "tcp", "127.0.0.1:1000", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "[::1]:1000", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "198.18.0.1:1000", unix.ECONNREFUSED)
	if got := came(); len(got) != len(want) {
		t.Errorf("held besides: %v", got[len(want):])
	}
}

// TestHoldWeb: the ports of the web are held where they are raw.
func TestHoldWeb(t *testing.T) {
	n := withQueue(t, Config{Open: true})
	answer(t, n, verdicts)
	reach(t, n, "198.18.0.9:80")
	reach(t, n, "198.18.0.9:443")
	reach(t, n, "10.1.2.3:443")
	for _, ports := range [][]uint16{{443}, {80, 443, 1001}} {
		if err := n.Apply(Config{Open: true, RawPorts: ports}); err != nil {
			t.Fatal(err)
		}
		checkErrno(t, n, "tcp", "198.18.0.9:443", unix.ECONNREFUSED)
		reach(t, n, "10.1.2.3:443")
	}
	checkErrno(t, n, "tcp", "198.18.0.9:80", unix.ECONNREFUSED)
	// A rule that is there needs none, and who takes the namespace over knows of it.
	files, err := n.Files()
	if err != nil {
		t.Fatal(err)
	}
	_ = n.SYNs.Close()
	next, err := Adopt(files, n.config)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	answer(t, next, verdicts)
	checkErrno(t, next, "tcp", "198.18.0.9:443", unix.ECONNREFUSED)
}

// TestHoldAdopt: without a queue nothing passes, and who takes the namespace over makes it
// again, whatever the policy has become.
func TestHoldAdopt(t *testing.T) {
	n := withQueue(t, Config{})
	files, err := n.Files()
	if err != nil {
		t.Fatal(err)
	}
	_ = n.SYNs.Close()
	fd := -1
	if err := n.inside(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 1000, Addr: [4]byte{198, 18, 0, 9}}); !errors.Is(err,
		unix.EINPROGRESS) {
		t.Fatal(err)
	}
	if writable(t, fd, 300) {
		t.Fatal("connected although nobody reads the queue")
	}
	next, err := Adopt(files, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	answer(t, next, verdicts)
	if !writable(t, fd, 30_000) { // when it is sent again
		t.Error("not connected with the next queue")
	}
	reach(t, next, "198.18.0.9:1000")
}

func writable(t *testing.T, fd, ms int) bool {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		k, err := unix.Poll(poll, ms)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		return k == 1
	}
}
