package proxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestRaw: any stream to a name and port that tcp:// allows, and a reset for others.
func TestRaw(t *testing.T) {
	server := serve(t, "127.0.0.1:5432", echo)
	passed := make(chan string, 1) // one more would block, and fail the test
	r := start(t, allow("tcp://db.test:5432"), func(c *Config) {
		c.Passed = func(t api.NetTarget, rule string) {
			passed <- fmt.Sprintf("%s %s:%d by %s", t.Proto, t.Name, t.Port, rule)
		}
	})
	r.hosts.set("db.test", []string{"127.0.0.1"})

	c := r.connect("db.test", server.Port())
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
	if got := <-passed; got != "tcp db.test:5432 by allow tcp://db.test:5432" {
		t.Errorf("passed: %s", got)
	}

	other := r.address("other.test", 5432)
	for what, at := range map[string]netip.AddrPort{
		"another port":           r.address("db.test", 5433),
		"another name":           other,
		"an address of no name":  netip.AddrPortFrom(r.nameless(), 5432),
		"an address of loopback": netip.MustParseAddrPort("127.0.0.7:5432"),
	} {
		n := len(r.denials())
		client := r.expectReset(what, at)
		d := r.denial(n)
		if d.Address != at.Addr() || d.Port != at.Port() || d.Why == "" || d.Errno != "ECONNRESET" ||
			d.Proto != "tcp" || client != "" && d.Client.String() != client {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

// TestBulk: much data both ways, through buffers and pipes, arrives as it was sent.
func TestBulk(t *testing.T) {
	const size = 48 << 20
	server := serve(t, "127.0.0.1:9000", func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c)
		_, _ = c.Write(h.Sum(nil))
		_, _ = io.Copy(c, stream(size))
	})
	r := start(t, allow("tcp://big.test:9000"))
	r.hosts.set("big.test", []string{"127.0.0.1"})
	c := r.connect("big.test", server.Port())
	sent := sha256.New()
	if n, err := io.Copy(io.MultiWriter(c, sent), stream(size)); err != nil || n != size {
		t.Fatal(n, err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	digest := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, digest); err != nil || !bytes.Equal(digest, sent.Sum(nil)) {
		t.Fatalf("up: %x, sent %x, %v", digest, sent.Sum(nil), err)
	}
	got := sha256.New()
	if n, err := io.Copy(got, c); err != nil || n != size || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Fatalf("down: %d bytes, %v", n, err)
	}
	counts := r.Counts()
	if len(counts) != 1 || counts[0].Rule != "allow tcp://big.test:9000" || counts[0].Connections != 1 ||
		counts[0].BytesUp != size || counts[0].BytesDown != size+sha256.Size {
		t.Errorf("%+v", counts)
	}
}

// TestPipes: there are only so many, streams that get none go on without, and when no
// stream carries much there are none.
func TestPipes(t *testing.T) {
	awaitQuota(t)
	wantPipes()
	var taken []*pipe
	for {
		p := takePipe()
		if p == nil {
			break
		}
		taken = append(taken, p)
	}
	if len(taken) != maxPipes {
		t.Errorf("%d pipes, want %d", len(taken), maxPipes)
	}
	const size = 8 << 20
	server := serve(t, "127.0.0.1:9000", func(c *net.TCPConn) { _, _ = io.Copy(c, stream(size)) })
	r := start(t, allow("tcp://big.test:9000"))
	r.hosts.set("big.test", []string{"127.0.0.1"})
	got, want := sha256.New(), sha256.New()
	_, _ = io.Copy(want, stream(size))
	if n, err := io.Copy(got, r.connect("big.test", server.Port())); err != nil || n != size ||
		!bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("without pipes: %d bytes, %v", n, err)
	}
	for _, p := range taken {
		p.release()
	}
	r.Close()
	enoughPipes()
	pipes.Lock()
	defer pipes.Unlock()
	if pipes.made != 0 || len(pipes.free) != 0 || pipes.streams != 0 {
		t.Errorf("%d pipes, %d of them free, for %d streams", pipes.made, len(pipes.free), pipes.streams)
	}
}

// awaitQuota waits until the user may have as many large pipes as the proxy takes: what all of his processes have
// counts (pipe(7), pipe-user-pages-soft), and the tests of other packages have some at times. hutchd's user has nothing
// else.
func awaitQuota(t *testing.T) {
	t.Helper()
	testenv.Poll(t, 20*time.Second, "other processes of this user have all large pipes", func() bool {
		pipes.Lock()
		pipes.off = false // as an earlier test has found
		pipes.Unlock()
		wantPipes()
		defer enoughPipes()
		n := 0
		for ; n < maxPipes; n++ {
			p := takePipe()
			if p == nil {
				break
			}
			defer p.release()
		}
		return n == maxPipes
	})
}

// stream is the same pseudo-random bytes each time.
func stream(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }

// TestResets: what one side loses the other side does not take for an end.
func TestResets(t *testing.T) {
	gone := make(chan error, 1)
	server := serve(t, "127.0.0.1:9000", func(c *net.TCPConn) {
		b := make([]byte, 1)
		if _, err := c.Read(b); err != nil {
			return
		}
		if b[0] == 'r' { // reset
			_ = c.SetLinger(0)
			return
		}
		_, err := c.Read(b)
		gone <- err
	})
	r := start(t, allow("tcp://s.test:9000"))
	r.hosts.set("s.test", []string{"127.0.0.1"})
	c := r.connect("s.test", server.Port())
	if _, err := c.Write([]byte("r")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server reset the connection, the client saw %v", err)
	}
	c = r.connect("s.test", server.Port())
	if _, err := c.Write([]byte("w")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetLinger(0)
	_ = c.Close()
	if err := <-gone; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client reset the connection, the server saw %v", err)
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
}

// TestUnreachable: a server that is not there is a reset and a failure, not a denial.
func TestUnreachable(t *testing.T) {
	r := start(t, allow("tcp://down.test:9000", "tcp://unknown.test:9000"))
	r.hosts.set("down.test", []string{"127.0.0.1"})
	why := []string{"nothing listens at 127.0.0.1 port 9000", "knows no address of unknown.test"}
	for i, name := range []string{"down.test", "unknown.test"} {
		r.expectReset(name, r.address(name, 9000))
		r.mu.Lock()
		if len(r.failed) != i+1 || r.failed[i].Name != name || r.failed[i].Err == nil ||
			!strings.Contains(r.failed[i].Why, why[i]) || r.failed[i].Errno != "ECONNRESET" {
			t.Errorf("%s: failures %+v", name, r.failed)
		}
		r.mu.Unlock()
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
}

// TestRebinding: a name whose address changes between one lookup and the next, and names
// with forbidden addresses among others.
func TestRebinding(t *testing.T) {
	reached := make(chan string, 100)
	server := serve(t, "127.0.0.1:9000", func(c *net.TCPConn) {
		reached <- c.LocalAddr().String()
		_, _ = c.Write([]byte("x"))
	})
	serve(t, "127.0.0.2:9000", func(c *net.TCPConn) { reached <- c.LocalAddr().String() })
	policy := api.NetPolicy{Mode: api.NetAllow, Allow: []string{"tcp://a.test:9000"},
		AllowCIDRs: []string{"127.0.0.1/32"}}
	r := start(t, policy)
	r.hosts.set("a.test", []string{"127.0.0.1"}, []string{"127.0.0.2"})
	c := r.connect("a.test", server.Port())
	if b, err := io.ReadAll(c); err != nil || string(b) != "x" {
		t.Fatalf("before: %q, %v", b, err)
	}
	<-reached
	for _, a := range []string{"127.0.0.2", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.2", "64:ff9b::7f00:2",
		"2002:7f00:2::1", "fd00:ec2::254", "100.64.0.1", "224.0.0.1", "0.0.0.0"} {
		n := len(r.denials())
		r.hosts.set("a.test", []string{a})
		r.expectReset(a, r.address("a.test", server.Port()))
		d := r.denial(n)
		if want := netip.MustParseAddr(a).Unmap(); d.Address != want || d.Name != "a.test" ||
			!strings.Contains(d.Why, "a.test has the address") {
			t.Errorf("%s: %+v", a, d)
		}
	}
	// One that is allowed among others that are not.
	r.hosts.set("a.test", []string{"127.0.0.2", "127.0.0.1"})
	c = r.connect("a.test", server.Port())
	if b, err := io.ReadAll(c); err != nil || string(b) != "x" {
		t.Errorf("mixed addresses: %q, %v", b, err)
	}
	if at := <-reached; at != "127.0.0.1:9000" {
		t.Errorf("reached %s", at)
	}
	// And of the other family.
	r.hosts.set("a.test", []string{"::1", "127.0.0.1"})
	if b, err := io.ReadAll(r.connect("a.test", server.Port())); err != nil || string(b) != "x" {
		t.Errorf("IPv6 is forbidden, IPv4 is not: %q, %v", b, err)
	}
	<-reached
	select {
	case at := <-reached:
		t.Errorf("reached %s", at)
	default:
	}
}

// TestOwnAddress: the host's own addresses are known by their routes.
func TestOwnAddress(t *testing.T) {
	for a, want := range map[string]bool{
		"127.0.0.1": true, "127.200.0.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"198.51.100.1": false, "2001:db8::1": false, // no route in here at all
	} {
		if got := OwnAddress(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
}

// TestRemembered: an answer that may be kept is asked for once, checked each time, and
// asked for again when nothing is there any more.
func TestRemembered(t *testing.T) {
	server := serve(t, "127.0.0.1:9001", func(c *net.TCPConn) { _, _ = c.Write([]byte("x")) })
	r := start(t, allow("tcp://a.test:9001"))
	r.hosts.ttl = 3600
	r.hosts.set("a.test", []string{"127.0.0.1"})
	at := r.address("a.test", server.Port())
	reach := func() {
		t.Helper()
		if b, err := io.ReadAll(r.dialTo(at)); err != nil || string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
	}
	reach()
	asked := r.hosts.lookups()
	reach()
	if n := r.hosts.lookups(); n != asked {
		t.Errorf("%d questions for the first connection, %d for two", asked, n)
	}
	r.rules.Store(compile(t, api.NetPolicy{Mode: api.NetAllow, Allow: []string{"tcp://a.test:9001"},
		AllowCIDRs: []string{"127.0.0.2"}}))
	r.expectReset("an address that is remembered and not allowed", at)
	if d := r.denial(0); d.Address.String() != "127.0.0.1" {
		t.Errorf("%+v", d)
	}
	r.rules.Store(compile(t, allow("tcp://a.test:9001")))
	r.hosts.set("a.test", []string{"127.0.0.2"}) // where nothing listens
	r.expectReset("a server that is gone", at)
	r.hosts.set("a.test", []string{"127.0.0.1"})
	reach()
}
