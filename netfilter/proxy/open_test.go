package proxy

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// opened is a policy of mode open; loopback, where the servers of tests are, is allowed.
func opened(block ...string) api.NetPolicy {
	return api.NetPolicy{Mode: api.NetOpen, Block: block, AllowCIDRs: []string{"127.0.0.0/8"}}
}

// TestOpen: in mode open streams that name nobody pass, whoever speaks first, and those
// that name a blocked host do not, at whatever address they are.
func TestOpen(t *testing.T) {
	web(t, "127.0.0.1:80")
	pool := tlsServer(t, "127.0.0.1:443", "a.test", "b.test", "x.evil.test")
	greeter := serve(t, "127.0.0.1:22", func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "SSH-2.0-server\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "got "+line)
	})
	r := start(t, opened("*.evil.test"))
	for _, name := range []string{"a.test", "x.evil.test"} {
		r.hosts.set(name, []string{"127.0.0.1"})
	}

	for _, sent := range []string{"SSH-2.0-client\r\n", "EHLO me\r\n", "GET out\r\n", "\x00\x01\n", "\n"} {
		c := r.connect("a.test", greeter.Port())
		b := bufio.NewReader(c)
		if line, err := b.ReadString('\n'); err != nil || line != "SSH-2.0-server\r\n" {
			t.Fatalf("the server's greeting: %q, %v", line, err)
		}
		_, _ = io.WriteString(c, sent)
		if line, err := b.ReadString('\n'); err != nil ||
			!strings.HasSuffix(line, sent[strings.LastIndex(sent[:len(sent)-1], "\n")+1:]) {
			t.Errorf("%q: the server's answer: %q, %v", sent, line, err)
		}
	}
	c := r.connect("a.test", greeter.Port())
	_ = c.CloseWrite() // says nothing at all
	if got, err := io.ReadAll(c); err != nil || string(got) != "SSH-2.0-server\r\ngot " {
		t.Errorf("a client that only listens: %q, %v", got, err)
	}
	if got := talk(t, r.connect("a.test", 80), "GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n"); !strings.Contains(got,
		"GET other.test /x") {
		t.Errorf("a host that is not blocked: %q", got)
	}
	if got, err := handshake(r.connect("a.test", 443), &tls.Config{RootCAs: pool, ServerName: "b.test"}); err != nil ||
		got != "b.test" {
		t.Errorf("a server name that is not blocked: %q, %v", got, err)
	}
	if _, err := handshake(r.connect("a.test", 443), &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Errorf("no server name: %v", err)
	}
	if d := r.denials(); len(d) != 0 {
		t.Fatalf("denials: %+v", d)
	}

	if got := talk(t, r.connect("a.test", 80), "GET /x HTTP/1.1\r\nHost: x.evil.test\r\n\r\n"); !strings.Contains(got,
		"403 Forbidden") {
		t.Errorf("a blocked host: %q", got)
	}
	if _, err := handshake(r.connect("a.test", 443),
		&tls.Config{RootCAs: pool, ServerName: "x.evil.test"}); err == nil ||
		!strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("a blocked server name: %v", err)
	}
	r.expectReset("a blocked name", r.address("x.evil.test", 443))
	for n := range 3 {
		if d := r.denial(n); d.Rule != "block *.evil.test" {
			t.Errorf("denial %d: %+v", n, d)
		}
	}
}

// TestAlias: what is another name of a blocked one is blocked, also when it is remembered and when many ask at once;
// what is another name of something else is not.
func TestAlias(t *testing.T) {
	at := serve(t, "127.0.0.1:22", func(c *net.TCPConn) { _, _ = io.WriteString(c, "hello\n") })
	r := start(t, opened("*.evil.test"))
	r.hosts.set("alias.test", []string{"=middle.test", "=x.evil.test", "127.0.0.1"})
	r.hosts.set("fine.test", []string{"=good.test", "127.0.0.1"})
	for range 3 {
		r.expectReset("another name of a blocked one", r.address("alias.test", at.Port()))
	}
	for n := range 3 {
		if d := r.denial(n); d.Rule != "block *.evil.test" ||
			!strings.Contains(d.Why, "alias.test is another name of") {
			t.Errorf("denial %d: %+v", n, d)
		}
	}
	for range 2 {
		if got, err := io.ReadAll(r.connect("fine.test", at.Port())); err != nil || string(got) != "hello\n" {
			t.Errorf("another name of one that is not blocked: %q, %v", got, err)
		}
	}
}

// TestWebSocket: a protocol that the server agrees to is copied; one that it does not
// agree to leaves no way past the check of the next request.
func TestWebSocket(t *testing.T) {
	serve(t, "127.0.0.1:80", func(c *net.TCPConn) {
		b := bufio.NewReader(c)
		for {
			q, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			switch {
			case q.Header.Get("Upgrade") != "websocket":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain")
			case q.URL.Path == "/no":
				_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
			default:
				_, _ = io.WriteString(c,
					"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe:")
				_, _ = io.Copy(c, b)
				return
			}
		}
	})
	const head = " HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
	const evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	for _, p := range []api.NetPolicy{allow("a.test"), opened("evil.test")} {
		r := start(t, p)
		r.hosts.set("a.test", []string{"127.0.0.1"})
		if got := talk(t, r.connect("a.test", 80), "GET /yes"+head+evil); !strings.HasSuffix(got, "frame:"+evil) {
			t.Errorf("%s, accepted: %q", p.Mode, got)
		}
		if d := r.denials(); len(d) != 0 {
			t.Errorf("%s, accepted: denials %+v", p.Mode, d)
		}
		if got := talk(t, r.connect("a.test", 80), "GET /no"+head+evil); strings.Count(got, "200 OK") > 1 {
			t.Errorf("%s, not accepted: %q", p.Mode, got)
		}
		if d := r.denial(0); d.Errno != "ECONNRESET" {
			t.Errorf("%s: %+v", p.Mode, d)
		}
		// Of two the server could choose the other one, HTTP/2, whose hosts nobody sees.
		if got := talk(t, r.connect("a.test", 80), "GET /1 HTTP/1.1\r\nHost: a.test\r\nUpgrade: h2c"+
			strings.TrimPrefix(head, " HTTP/1.1\r\nHost: a.test")); !strings.Contains(got, "plain") {
			t.Errorf("%s, two protocols: %q", p.Mode, got)
		}
		if d := r.denial(1); d.Errno != "no upgrade" {
			t.Errorf("%s, two protocols: %+v", p.Mode, d)
		}
		// Not the first request: it goes to a server of its own, also behind one that was not agreed to.
		const first = "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\n"
		if got := talk(t, r.connect("a.test", 80), first+"GET /2"+head+evil); strings.Count(got, "plain") != 1 ||
			!strings.HasSuffix(got, "frame:"+evil) {
			t.Errorf("%s, second request: %q", p.Mode, got)
		}
		if got := talk(t, r.connect("a.test", 80), first+"GET /no"+head+"GET /3"+head+"data"); strings.Count(got,
			"no") != 1 || !strings.HasSuffix(got, "frame:data") {
			t.Errorf("%s, third request: %q", p.Mode, got)
		}
		n := len(r.denials())
		if got := talk(t, r.connect("a.test", 80), strings.ReplaceAll("GET /1"+head, "websocket",
			"tcp")); !strings.Contains(got, "plain") {
			t.Errorf("%s, another protocol: %q", p.Mode, got)
		}
		if d := r.denial(n); d.Errno != "no upgrade" || !strings.Contains(d.Why, `protocol "tcp"`) {
			t.Errorf("%s, another protocol: %+v", p.Mode, d)
		}
		r.Close()
	}
}

// TestWebSocketCut: behind a response that was cut, or was not read, comes nothing of another server, and one that
// cannot be reached is no response.
func TestWebSocketCut(t *testing.T) {
	const requests = "GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	begin := func(t *testing.T, first func(c *net.TCPConn), again bool) (*rig, *net.TCPConn) {
		l := listener(t, "127.0.0.1:80")
		served := make(chan struct{})
		go func() {
			defer close(served)
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			if !again {
				l.Close()
			}
			first(c)
			c.Close()
			if c, err = l.AcceptTCP(); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-served })
		r := start(t, allow("a.test"), func(c *Config) { c.Limits.HeadTime = time.Second })
		r.hosts.set("a.test", []string{"127.0.0.1"})
		c := r.connect("a.test", 80)
		if _, err := io.WriteString(c, requests); err != nil {
			t.Fatal(err)
		}
		return r, c
	}
	reset := func(t *testing.T, c *net.TCPConn, want string) {
		t.Helper()
		if got, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) || !strings.HasPrefix(want, string(got)) {
			t.Errorf("%q, %v", got, err)
		}
	}
	t.Run("cut", func(t *testing.T) {
		const part = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart"
		_, c := begin(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, part)
			_, _ = io.Copy(io.Discard, c) // until no more is to come
			_ = c.SetLinger(0)
		}, true)
		reset(t, c, part)
	})
	t.Run("gone", func(t *testing.T) {
		const all = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall"
		r, c := begin(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, all)
			_, _ = io.Copy(io.Discard, c)
		}, false)
		reset(t, c, all)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.failed) != 1 || r.failed[0].Errno != "ECONNRESET" {
			t.Errorf("failures %+v", r.failed)
		}
	})
	t.Run("not read", func(t *testing.T) {
		r, _ := begin(t, func(c *net.TCPConn) {
			for {
				if _, err := c.Write(make([]byte, largeBuffer)); err != nil {
					return
				}
			}
		}, true)
		if d := r.denial(0); d.Errno != "ECONNRESET" || !strings.Contains(d.Why, "have not ended") {
			t.Errorf("%+v", d)
		}
	})
}

// TestLiterals: addresses without a name, of IPv4 and not, in modes allow and open.
func TestLiterals(t *testing.T) {
	// 192.0.2.7 is for documentation; here it is an address of loopback's.
	if err := addAddress("192.0.2.7"); err != nil {
		t.Fatal(err)
	}
	server := serve(t, "192.0.2.7:9000", func(c *net.TCPConn) { _, _ = io.WriteString(c, "x") })
	at := netip.AddrPortFrom(netip.MustParseAddr("127.98.0.1"), server.Port())
	elsewhere := func(c *Config) {
		c.Destination = func(*net.TCPConn) (netip.AddrPort, error) { return server, nil }
	}
	for what, c := range map[string]struct {
		policy api.NetPolicy
		own    bool
		rule   string
	}{
		"allow":        {allow("a.test"), false, "reserved address"},
		"allow, range": {api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"192.0.2.0/24"}}, false, ""},
		"allow, range of ours": {api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"192.0.2.0/24"}}, true,
			"host's own address"},
		"allow, our own address": {api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"192.0.2.7"}}, true, ""},
		"open":                   {api.NetPolicy{Mode: api.NetOpen}, false, "reserved address"},
		"open, blocked range": {api.NetPolicy{Mode: api.NetOpen, AllowCIDRs: []string{"192.0.2.0/24"},
			BlockCIDRs: []string{"192.0.2.7"}}, false, "block_cidrs 192.0.2.7"},
	} {
		r := start(t, c.policy, elsewhere, func(cfg *Config) {
			cfg.Own = func(a netip.Addr) bool { return c.own && OwnAddress(a) }
		})
		if c.rule == "" {
			r.listen(at)
			if got, err := io.ReadAll(r.dialTo(at)); err != nil || string(got) != "x" {
				t.Errorf("%s: %q, %v", what, got, err)
			}
		} else {
			r.expectReset(what, at)
			if d := r.denial(0); d.Rule != c.rule || d.Address != server.Addr() || d.Name != "" {
				t.Errorf("%s: %+v", what, d)
			}
		}
		r.Close()
	}
}

// TestNotRedirected: connections to the listener itself lead nowhere, whatever is allowed.
func TestNotRedirected(t *testing.T) {
	r := start(t, opened())
	r.expectReset("the listener's own port", netip.MustParseAddrPort("127.0.0.9:9000"))
	if d := r.denial(0); d.Rule != "not redirected" {
		t.Errorf("%+v", d)
	}
	redirected := start(t, opened(), func(c *Config) { c.Destination = OriginalDestination })
	redirected.expectReset("not in connection tracking", netip.MustParseAddrPort("127.0.0.9:9001"))
	if d := redirected.denial(0); d.Rule != "not redirected" || !strings.Contains(d.Why, "SO_ORIGINAL_DST") {
		t.Errorf("%+v", d)
	}
}

// addAddress gives loopback one more address.
func addAddress(text string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	a := netip.MustParseAddr(text).As4()
	return errors.Join(ifr.SetInet4Addr(a[:]), unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr))
}
