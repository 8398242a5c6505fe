package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestRecheck: new rules end the connections that they forbid, at once, and no others.
func TestRecheck(t *testing.T) {
	server := serve(t, "127.0.0.1:9000", echo)
	serve(t, "127.0.0.2:9000", echo)
	serve(t, "127.0.0.1:80", echo)
	base := []string{"tcp://a.test:9000", "tcp://b.test:9000", "tcp://c.test:9000", "d.test:9000", "h.test"}
	for what, c := range map[string]struct {
		change func(*api.NetPolicy)
		ends   string // the names whose connections end
		rule   string
	}{
		"nothing":           {func(*api.NetPolicy) {}, "", ""},
		"a name is gone":    {func(p *api.NetPolicy) { p.Allow = p.Allow[1:] }, "a.test", "mode allow"},
		"a name is blocked": {func(p *api.NetPolicy) { p.Block = []string{"b.test"} }, "b.test", "block b.test"},
		"another port":      {func(p *api.NetPolicy) { p.Allow[1] = "tcp://b.test:9001" }, "b.test", "mode allow"},
		"a range is blocked": {func(p *api.NetPolicy) { p.BlockCIDRs = []string{"127.0.0.2"} }, "c.test",
			"block_cidrs 127.0.0.2"},
		"must show its name":  {func(p *api.NetPolicy) { p.Allow[0] = "a.test:9000" }, "a.test", "allow a.test:9000"},
		"need not any longer": {func(p *api.NetPolicy) { p.Allow[3] = "tcp://d.test:9000" }, "", ""},
		"none": {func(p *api.NetPolicy) { *p = api.NetPolicy{} }, "a.test b.test c.test d.test h.test",
			"mode none"},
		"open": {func(p *api.NetPolicy) { p.Mode = api.NetOpen }, "", ""},
	} {
		p := allow(base...)
		p.Allow = append([]string(nil), base...)
		r := start(t, p)
		conns := map[string]*net.TCPConn{}
		for name, hello := range map[string]string{
			"a.test": "x", "b.test": "x", "c.test": "x",
			"d.test": "GET / HTTP/1.1\r\nHost: d.test\r\n\r\n", "h.test": "GET / HTTP/1.1\r\nHost: h.test\r\n\r\n",
		} {
			at := []string{"127.0.0.1"}
			if name == "c.test" {
				at = []string{"127.0.0.2"}
			}
			r.hosts.set(name, at)
			port := server.Port()
			if name == "h.test" {
				port = 80
			}
			conns[name] = r.connect(name, port)
			if _, err := io.WriteString(conns[name], hello); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conns[name], make([]byte, len(hello))); err != nil {
				t.Fatal(name, err)
			}
		}
		c.change(&p)
		r.rules.Store(compile(t, p))
		r.Recheck()
		for name, conn := range conns {
			ends := strings.Contains(c.ends, name)
			_, err := io.WriteString(conn, "y")
			if err == nil && !ends && name < "d" {
				_, err = io.ReadFull(conn, make([]byte, 1))
			} else if err == nil && ends {
				_, err = conn.Read(make([]byte, 1))
			}
			if ends != (errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)) {
				t.Errorf("%s: the connection to %s: %v", what, name, err)
			}
		}
		denied := r.denials()
		if want := len(strings.Fields(c.ends)); len(denied) != want {
			t.Errorf("%s: %d denials, want %d: %+v", what, len(denied), want, denied)
		}
		for _, d := range denied {
			if d.Rule != c.rule || !strings.Contains(c.ends, d.Name) {
				t.Errorf("%s: %+v", what, d)
			}
		}
		r.Close()
	}
}

// TestRecheckRace: connections that begin while the rules change end, or were never made.
func TestRecheckRace(t *testing.T) {
	server := serve(t, "127.0.0.1:9000", echo)
	p := allow("tcp://a.test:9000")
	closed := allow("tcp://other.test:9000")
	for range 20 {
		r := start(t, p)
		r.hosts.set("a.test", []string{"127.0.0.1"})
		at := r.address("a.test", server.Port())
		ended := make(chan error, 20)
		for range cap(ended) {
			go func() {
				c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(at))
				if err != nil {
					ended <- err
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, err = c.Read(make([]byte, 1))
				ended <- err
			}()
		}
		r.rules.Store(compile(t, closed))
		r.Recheck()
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("a connection that the rules forbid: %v", err)
			}
		}
		r.Close()
	}
}

// TestConnectionLimit: what is too much is refused, and room that is made is used.
func TestConnectionLimit(t *testing.T) {
	server := serve(t, "127.0.0.1:9000", echo)
	r := start(t, allow("tcp://a.test:9000"), func(c *Config) { c.Limits.Connections = 5 })
	r.hosts.set("a.test", []string{"127.0.0.1"})
	use := func(c *net.TCPConn) {
		t.Helper()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var conns []*net.TCPConn
	for range 5 {
		c := r.connect("a.test", server.Port())
		use(c)
		conns = append(conns, c)
	}
	r.expectReset("one too many", r.address("a.test", server.Port()))
	if d := r.denial(0); d.Rule != "connection limit" || d.Why != "the sandbox has 5 connections, as many as it may" {
		t.Errorf("%+v", d)
	}
	if _, err := talkRaw(conns[0], ""); err != nil { // ends in order
		t.Error(err)
	}
	waitFor(t, func() bool { return r.Connections() == 4 })
	use(r.connect("a.test", server.Port()))
}

func talkRaw(c *net.TCPConn, sent string) (string, error) {
	if _, err := io.WriteString(c, sent); err != nil {
		return "", err
	}
	_ = c.CloseWrite()
	b, err := io.ReadAll(c)
	return string(b), err
}

// waitFor waits for a state of the proxy that no event announces.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	testenv.Poll(t, patience, "it never came", ok)
}

// TestBudget: a process' fds are shared so that a sandbox with few connections finds room
// however many another one has.
func TestBudget(t *testing.T) {
	b := &fdBudget{limit: 3024, free: 1000}
	flood := 0
	for b.take(flood) {
		flood++
	}
	if flood < 900 || b.free < 50 {
		t.Errorf("one sandbox got %d of 1000, %d are left", flood, b.free)
	}
	if why := b.exhausted(flood); !strings.Contains(why, fmt.Sprintf("has %d connections", flood)) ||
		!strings.Contains(why, "the 3024 ") {
		t.Errorf("one sandbox is told: %s", why)
	}
	second := 0
	for b.take(second) {
		second++
	}
	if second < 30 || b.free < 1 {
		t.Errorf("the second one got %d, %d are left", second, b.free)
	}
	for range flood + second {
		b.release()
	}
	if b.free != 1000 {
		t.Errorf("%d of 1000 came back", b.free)
	}
}

// TestNoFDs: a process without fds accepts nothing, does not spin, and goes on when it
// has some again.
func TestNoFDs(t *testing.T) {
	server := serve(t, "127.0.0.1:9000", echo)
	r := start(t, allow("tcp://a.test:9000"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	at := r.address("a.test", server.Port())

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	// New fds must be below the limit, whichever are free above it.
	few := unix.Rlimit{Cur: 3, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }
	defer restore()
	if err := unix.Connect(client, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(client, []byte("x")); err != nil {
		t.Fatal(err)
	}
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	if readable(t, client, 500*time.Millisecond) {
		t.Error("without fds the connection was answered")
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	if used := time.Duration(after.Utime.Nano() +
		after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()); used > 250*time.Millisecond {
		t.Errorf("half a second without fds took %s of CPU time", used)
	}
	restore()
	if !readable(t, client, patience) {
		t.Error("with fds again the connection was not answered")
	}
}

// readable waits until fd can be read.
func readable(t testing.TB, fd int, wait time.Duration) bool {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(wait); ; {
		n, err := unix.Poll(poll, int(max(0, time.Until(deadline)).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}

// TestSlowClients: a client that does not come to the point is cut off.
func TestSlowClients(t *testing.T) {
	const soon = 50 * time.Millisecond
	for what, c := range map[string]struct {
		port uint16
		sent string
		head time.Duration
		why  string
	}{
		"half a hello": {443, "\x16\x03\x01\x02\x00\x01", soon, "the TLS handshake was not complete"},
		"half a head": {80, "GET / HTTP/1.1\r\nHost: a.test\r\n", soon,
			"the head of an HTTP request was not complete"},
		"silence":              {9000, "", soon, "where the server speaks first"},
		"nothing, on port 443": {443, "", soon, ""},
		"a head without end":   {80, "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 100_000), patience, "too long"},
		"a hello too large": {443, "\x16\x03\x01\x00\x04\x01\x00\xf0\x01", patience,
			"too long: a ClientHello of 61441 bytes, of which 61440 are read"},
		"a hello without end": {443, inRecords("\x01\x00\x3f\xff" + strings.Repeat("\x00", 15_000)), patience,
			"too long"},
	} {
		r := start(t, allow("a.test", "a.test:9000"),
			func(cfg *Config) { cfg.Limits.HeadTime, cfg.Limits.FirstTime = c.head, soon })
		// On a busy machine the time is over before connect returns.
		conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(r.address("a.test", c.port)))
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, c.sent)
			_, _ = io.ReadAll(conn)
			conn.Close()
		}
		if c.why != "" {
			if d := r.denial(0); !strings.Contains(d.Why, c.why) {
				t.Errorf("%s: %+v", what, d)
			}
		} else {
			waitFor(t, func() bool { return r.Connections() == 0 })
			if len(r.denials()) != 0 {
				t.Errorf("%s: %+v", what, r.denials())
			}
		}
		r.Close()
	}
}

// inRecords is a handshake message with a record for each byte.
func inRecords(message string) string {
	var b strings.Builder
	for i := range len(message) {
		b.WriteString("\x16\x03\x01\x00\x01" + message[i:i+1])
	}
	return b.String()
}

// TestHeldMemory: connections whose first bytes are long and never end hold few large
// buffers, and idle ones none.
func TestHeldMemory(t *testing.T) {
	web(t, "127.0.0.1:80")
	r := start(t, allow("a.test"), func(c *Config) { c.Limits.HeadTime = patience })
	r.hosts.set("a.test", []string{"127.0.0.1"})
	for range 20 {
		c := r.connect("a.test", 80)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return r.buffers.large.Load() == 0 }) // the last ones are still being put back
	for range maxLarge + 20 {
		c := r.connect("a.test", 80)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 8000))
	}
	if d := r.denial(0); !strings.Contains(d.Why, "as many as it may") {
		t.Errorf("%+v", d)
	}
	if n := r.buffers.large.Load(); n > maxLarge {
		t.Errorf("%d large buffers are held", n)
	}
}

// TestUploads: bodies of all sizes and kinds arrive whole, and what follows is checked.
func TestUploads(t *testing.T) {
	web(t, "127.0.0.1:80")
	r := start(t, allow("a.test"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	for _, size := range []int{0, 1, smallBuffer, smallBuffer + 1, largeBuffer, largeBuffer + 1, 1 << 20} {
		body := bytes.Repeat([]byte("b"), size)
		chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)
		if size == 0 {
			chunked = "0\r\n\r\n"
		}
		for what, sent := range map[string]string{
			"length":  fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%s", size, body),
			"chunked": "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		} {
			got := talk(t, r.connect("a.test", 80), sent+"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n")
			if n := strings.Count(got, "b"); n < size || !strings.Contains(got, "GET a.test /next") {
				t.Errorf("%s, %d bytes: %d came back, ending in %.80q", what, size, n, got[max(0, len(got)-80):])
			}
		}
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
}

// TestClose: it ends connections, and nothing is accepted afterwards.
func TestClose(t *testing.T) {
	server := serve(t, "127.0.0.1:9000", echo)
	r := start(t, allow("tcp://a.test:9000"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	c := r.connect("a.test", server.Port())
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the connection: %v", err)
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	r.ServeTCP(l) // returns
	if _, err := net.Dial("tcp4", l.Addr().String()); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a listener for a closed proxy: %v", err)
	}
}

// TestDenialFlood: refusals beyond the limit are counted and not told one by one.
func TestDenialFlood(t *testing.T) {
	r := start(t, allow("tcp://a.test:9000"), func(c *Config) { c.Limits.Denials = 1 })
	at := r.address("b.test", 9000)
	for range 100 {
		r.expectReset("a name that is not allowed", at)
	}
	if n := len(r.denials()); n < 10 || n > 50 {
		t.Errorf("%d of 100 denials were told, with 10 at once", n)
	}
	waitFor(t, func() bool { return r.Counts()[0] == Counts{Rule: "mode allow", Denials: 100} })
}
