package netfilter

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// patience bounds waiting for what must happen.
const patience = 30 * time.Second

// rig is a sandbox's network, with a program inside.
type rig struct {
	*Network
	t  *testing.T
	in *insider

	mu     sync.Mutex
	denied []api.DeniedEvent
}

// raw opens a network in which raw.test, which is 127.0.0.1, and some addresses may be
// connected to on these ports.
func raw(t *testing.T, p api.NetPolicy, ports ...uint16) *rig {
	t.Helper()
	r := &rig{t: t}
	e := newEngine(t, &keeper{})
	e.cfg.Resolver = loopbackNames(t)
	e.cfg.Denied = func(_ string, d api.DeniedEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.denied = append(r.denied, d)
	}
	for _, port := range ports {
		p.Allow = append(p.Allow, fmt.Sprintf("tcp://raw.test:%d", port))
	}
	if p.Mode == "" {
		p.Mode = api.NetAllow
	}
	p.AllowCIDRs = append(p.AllowCIDRs, "127.0.0.0/8")
	var err error
	if r.Network, err = e.Open("a", t.TempDir(), p, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if r.ns.SYNs == nil {
		t.Fatalf("nothing is held in the way %s", r.ns.Way)
	}
	r.in = newInsider(t, r.File())
	return r
}

// name is where raw.test is inside.
func (r *rig) name(port uint16) netip.AddrPort {
	r.t.Helper()
	a, err := r.names.Table.Address("raw.test")
	if err != nil {
		r.t.Fatal(err)
	}
	return netip.AddrPortFrom(a, port)
}

// begin is a connect that does not wait.
func (r *rig) begin(to netip.AddrPort) (fd int) {
	r.t.Helper()
	var err error
	done := make(chan struct{})
	r.in.work <- func() {
		defer close(done)
		domain, sa := unix.AF_INET, unix.Sockaddr(nil)
		if to.Addr().Is4() {
			sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
		} else {
			domain, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
		}
		if fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
			if err = unix.Connect(fd, sa); errors.Is(err, unix.EINPROGRESS) {
				err = nil
			}
		}
	}
	<-done
	if err != nil {
		r.t.Fatal(err)
	}
	return fd
}

// outcome waits for the end of a connect and returns what it failed with. The kernel tells of an ICMP
// error in a socket's queue of errors before the socket has failed (net/ipv4/tcp_ipv4.c, tcp_v4_err): who
// asks at once may find a socket that is neither connected nor has an error.
func outcome(t *testing.T, fd int) error {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if n, err := unix.Poll(poll, int(patience.Milliseconds())); err != nil || n != 1 {
			t.Fatal("a connect that does not end", err)
		}
		v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			t.Fatal(err)
		}
		if v != 0 {
			return unix.Errno(v)
		}
		if poll[0].Revents&unix.POLLERR == 0 {
			return nil
		}
	}
}

// connect connects, and returns the errno of connect(2) itself.
func (r *rig) connect(to netip.AddrPort) error {
	r.t.Helper()
	fd := r.begin(to)
	defer unix.Close(fd)
	return outcome(r.t, fd)
}

func (r *rig) expect(what string, to netip.AddrPort, want error) {
	r.t.Helper()
	if err := r.connect(to); !errors.Is(err, want) {
		r.t.Errorf("%s: connect to %s: %v, want %v", what, to, err, want)
	}
}

// expectReset is for what the policy refuses: accepted, and reset.
func (r *rig) expectReset(what string, fd int) {
	r.t.Helper()
	defer unix.Close(fd)
	err := outcome(r.t, fd)
	if err == nil {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(patience.Milliseconds())); err != nil || n != 1 {
			r.t.Fatal("no reset", err)
		}
		_, err = unix.Read(fd, make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		r.t.Errorf("%s: %v, want ECONNRESET", what, err)
	}
}

func (r *rig) denials() []api.DeniedEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.denied)
}

// waitFor waits for a state that no event announces.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testenv.Poll(t, patience, what+" never came", ok)
}

// silence is a port on which connections wait in the dark: its queue is full. answer makes
// room in it.
func silence(t *testing.T) (port uint16, answer func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	port = l.Addr().(*net.TCPAddr).AddrPort().Port()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return port, func() {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.WriteString(c, "hello")
					_, _ = io.Copy(io.Discard, c)
				}()
			}
		}()
	}
}

func closedPort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// TestHeldErrno: connect(2) fails as hutchd's own did, and what the policy refuses is
// accepted and reset.
func TestHeldErrno(t *testing.T) {
	alive := server(t, func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
	l, err := net.Listen("tcp6", "[fd00::7]:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	alive6 := l.Addr().(*net.TCPAddr).AddrPort()
	dead := closedPort(t)
	r := raw(t, api.NetPolicy{AllowCIDRs: []string{"203.0.113.0/24", "fd00::7", "fd00::8", "192.0.2.0/24"}},
		alive, dead)
	for range 3 {
		c, err := r.in.dial(r.name(alive).String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.Close()
		r.expect("a closed port", r.name(dead), unix.ECONNREFUSED)
		r.expect("no way", netip.MustParseAddrPort("203.0.113.9:5432"), unix.EHOSTUNREACH)
		r.expect("no route", netip.MustParseAddrPort("192.0.2.9:5432"), unix.ENETUNREACH)
		r.expect("IPv6", alive6, nil)
		r.expect("a closed port of IPv6", netip.AddrPortFrom(alive6.Addr(), dead), unix.ECONNREFUSED)
		r.expect("no route of IPv6", netip.MustParseAddrPort("[fd00::8]:5432"), unix.ENETUNREACH)
	}
	if d := r.denials(); len(d) > 0 {
		t.Errorf("%+v", d)
	}
	r.expect("a port that is not allowed", r.name(alive^1), unix.EHOSTUNREACH)
	r.expect("an address that is no name's", netip.AddrPortFrom(netip.MustParseAddr("198.18.77.77"), dead),
		unix.EHOSTUNREACH)
	if d := r.denials(); len(d) != 2 || d[0].Name != "raw.test" || d[1].Address != "198.18.77.77" {
		t.Errorf("%+v", d)
	}
	waitFor(t, "the end of all flows", func() bool { return r.proxy.Connections() == 0 })
	for _, u := range r.Uses() {
		if want := map[string]int64{fmt.Sprintf("allow tcp://raw.test:%d", alive): 3,
			fmt.Sprintf("allow tcp://raw.test:%d", dead): 3}[u.Rule]; want != 0 && u.Connections != want {
			t.Errorf("%+v, want %d connections", u, want)
		}
	}
}

// TestHeldOpen: in mode open as well, with and without names that are blocked, and where
// the address behind a name is refused connect fails, with one denial.
func TestHeldOpen(t *testing.T) {
	alive := server(t, func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
	for _, block := range [][]string{nil, {"evil.test"}} {
		r := raw(t, api.NetPolicy{Mode: api.NetOpen, Block: block, BlockCIDRs: []string{"203.0.113.0/25"},
			AllowCIDRs: []string{"203.0.113.0/24"}})
		c, err := r.in.dial(r.name(alive).String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		_ = c.Close()
		r.expect("a closed port", r.name(closedPort(t)), unix.ECONNREFUSED)
		r.expect("a literal", netip.MustParseAddrPort("203.0.113.200:22"), unix.EHOSTUNREACH)
		r.expect("a blocked literal", netip.MustParseAddrPort("203.0.113.9:22"), unix.EHOSTUNREACH)
		if d := r.denials(); len(d) != 1 || !strings.HasPrefix(d[0].Rule, "block_cidrs") {
			t.Errorf("%+v", d)
		}
	}
	r := raw(t, api.NetPolicy{BlockCIDRs: []string{"127.0.0.1"}}, alive)
	r.expect("a name with a blocked address", r.name(alive), unix.EHOSTUNREACH)
	waitFor(t, "the denial", func() bool { return len(r.denials()) == 1 })
	if u := r.Uses(); len(u) != 2 || u[0].Connections != 1 && u[1].Connections != 1 {
		t.Errorf("%+v", u)
	}
}

// TestHeldPatience: a SYN that is sent again changes nothing, and the connection is made
// when the server answers.
func TestHeldPatience(t *testing.T) {
	port, answer := silence(t)
	r := raw(t, api.NetPolicy{}, port)
	fd := r.begin(r.name(port))
	defer unix.Close(fd)
	waitFor(t, "the second SYN", func() bool { return retransmits(t, fd) > 0 })
	if n := r.proxy.Connections(); n != 1 {
		t.Errorf("%d flows, want 1", n)
	}
	answer()
	if err := outcome(t, fd); err != nil {
		t.Error(err)
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	b := make([]byte, 9)
	_, _ = unix.Poll(poll, int(patience.Milliseconds()))
	if n, err := unix.Read(fd, b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("%q, %v", b[:max(n, 0)], err)
	}
}

func retransmits(t *testing.T, fd int) uint8 {
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	return info.Retransmits
}

// TestHeldGivesUp: who does not wait any longer leaves nothing behind.
func TestHeldGivesUp(t *testing.T) {
	port, _ := silence(t)
	r := raw(t, api.NetPolicy{}, port)
	early, late := r.begin(r.name(port)), r.begin(r.name(port))
	waitFor(t, "both flows", func() bool { return r.proxy.Connections() == 2 })
	_ = unix.Close(early)
	waitFor(t, "the end of the first", func() bool { return r.proxy.Connections() == 1 })
	waitFor(t, "a second SYN", func() bool { return retransmits(t, late) > 0 })
	if n := r.proxy.Connections(); n != 1 {
		t.Errorf("%d flows: who waits was given up", n)
	}
	_ = unix.Close(late)
	waitFor(t, "the end of the second", func() bool { return r.proxy.Connections() == 0 })
	if d := r.denials(); len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

// TestHeldFlood: more than may wait are refused at once, and room that is made is used.
func TestHeldFlood(t *testing.T) {
	const most = 8
	port, _ := silence(t)
	alive := server(t, func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
	r := raw(t, api.NetPolicy{}, port, alive)
	r.proxy.Limits.Held = most
	var held []int
	for range most {
		held = append(held, r.begin(r.name(port)))
	}
	waitFor(t, "all that may wait", func() bool { return r.proxy.Connections() == most })
	for range 20 {
		r.expect("one too many", r.name(port), unix.ECONNREFUSED)
	}
	if n := r.proxy.Connections(); n != most {
		t.Errorf("%d flows, want %d", n, most)
	}
	if d := r.denials(); len(d) != 20 || d[0].Rule != "connection limit" {
		t.Errorf("%+v", d)
	}
	for _, fd := range held {
		_ = unix.Close(fd)
	}
	waitFor(t, "room", func() bool { return r.proxy.Connections() == 0 })
	r.expect("with room", r.name(alive), nil)
}

// TestHeldUpdate: a policy that forbids what waits ends the wait, and says so once.
func TestHeldUpdate(t *testing.T) {
	port, _ := silence(t)
	r := raw(t, api.NetPolicy{}, port)
	fd := r.begin(r.name(port))
	waitFor(t, "the flow", func() bool { return r.proxy.Connections() == 1 })
	if err := r.Update(api.NetPolicy{Mode: api.NetAllow, Allow: []string{"other.test"}}); err != nil {
		t.Fatal(err)
	}
	r.expectReset("what is not allowed any more", fd)
	waitFor(t, "the denial", func() bool { return len(r.denials()) == 1 })
	// Raw ports that come while the sandbox runs.
	dead := closedPort(t)
	if err := r.Update(api.NetPolicy{Mode: api.NetAllow, Allow: []string{fmt.Sprintf("tcp://raw.test:%d", dead)},
		AllowCIDRs: []string{"127.0.0.0/8"}}); err != nil {
		t.Fatal(err)
	}
	r.expect("a new port", r.name(dead), unix.ECONNREFUSED)
}

// TestHeldClose: a network is closed in the middle of it.
func TestHeldClose(t *testing.T) {
	port, _ := silence(t)
	r := raw(t, api.NetPolicy{}, port)
	for range 5 {
		defer unix.Close(r.begin(r.name(port)))
	}
	waitFor(t, "the flows", func() bool { return r.proxy.Connections() == 5 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.proxy.Connections(); n != 0 {
		t.Errorf("%d flows", n)
	}
}

// TestAcceptFirst: in the next best way a closed port resets what was accepted.
func TestAcceptFirst(t *testing.T) {
	e := newEngine(t, &keeper{})
	e.cfg.Resolver, e.way, e.reason = loopbackNames(t), "tproxy", "asked for"
	dead := closedPort(t)
	n, err := e.Open("a", t.TempDir(),
		api.NetPolicy{Mode: api.NetAllow, Allow: []string{fmt.Sprintf("tcp://raw.test:%d", dead)},
			AllowCIDRs: []string{"127.0.0.0/8"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r := &rig{Network: n, t: t, in: newInsider(t, n.File())}
	r.expectReset("a closed port", r.begin(r.name(dead)))
	if _, _, detail := n.State(); !strings.Contains(detail, "by tproxy (asked for)") {
		t.Error(detail)
	}
}
