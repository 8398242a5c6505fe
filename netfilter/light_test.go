package netfilter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// peers is a server that hands out its connections.
func peers(t *testing.T) (port uint16, next <-chan *net.TCPConn) {
	conns := make(chan *net.TCPConn, 100)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	return server(t, func(c net.Conn) {
		conns <- c.(*net.TCPConn)
		<-done
	}), conns
}

// pair is both ends of a connection that the proxy's loop carries, to a port of raw.test.
func (r *rig) pair(port uint16, next <-chan *net.TCPConn) (client, server *net.TCPConn) {
	r.t.Helper()
	for range 200 {
		all, before := r.proxy.Connections(), r.proxy.Light()
		c, err := r.in.dial(r.name(port).String())
		if err != nil {
			r.t.Fatal(err)
		}
		client, server = c.(*net.TCPConn), <-next
		if r.proxy.Light() == before+1 {
			r.t.Cleanup(func() { _ = client.Close() })
			return client, server
		}
		// The first one, for which the name was looked up, or another goroutine accepted it.
		_, _ = client.Close(), server.Close()
		waitFor(r.t, "the end of a connection that is not to be reported",
			func() bool { return r.proxy.Connections() <= all })
	}
	r.t.Fatal("the loop carries no connection")
	return nil, nil
}

func (r *rig) say(c *net.TCPConn, words string) {
	r.t.Helper()
	if _, err := io.WriteString(c, words); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) hear(c *net.TCPConn, want string) {
	r.t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		r.t.Errorf("%q, %v, want %q", b, err, want)
	}
}

// TestLight: what the loop carries arrives, in both directions, with the end of each by
// itself, and is counted.
func TestLight(t *testing.T) {
	port, next := peers(t)
	r := raw(t, api.NetPolicy{}, port)
	for _, clientFirst := range []bool{true, false} {
		client, server := r.pair(port, next)
		for range 100 {
			r.say(client, "ping")
			r.hear(server, "ping")
			r.say(server, "pong")
			r.hear(client, "pong")
		}
		first, last := client, server
		if !clientFirst {
			first, last = server, client
		}
		r.say(first, "end")
		_ = first.CloseWrite()
		if b, err := io.ReadAll(last); err != nil || string(b) != "end" {
			t.Errorf("%q, %v", b, err)
		}
		r.say(last, "last words")
		r.hear(first, "last words")
		if n := r.proxy.Light(); n != 1 {
			t.Errorf("%d light connections, want 1", n)
		}
		_ = last.CloseWrite()
		if b, err := io.ReadAll(first); err != nil || len(b) > 0 {
			t.Errorf("%q, %v", b, err)
		}
		waitFor(t, "the end of the flow", func() bool { return r.proxy.Connections() == 0 })
	}
	if u := r.Uses(); len(u) == 0 || u[0].SentBytes != 2*400+3+10 || u[0].ReceivedBytes != 2*400+3+10 {
		t.Errorf("%+v", u)
	}
	if d := r.denials(); len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

// TestLightBurden: a connection that carries much is not the loop's any more, whichever end
// sends, and whether or not the other one takes it; nothing is lost or comes twice.
func TestLightBurden(t *testing.T) {
	port, next := peers(t)
	r := raw(t, api.NetPolicy{}, port)
	much := make([]byte, 8<<20)
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(much)
	for i := range 4 {
		up, piece := i%2 == 0, len(much)
		if i >= 2 {
			piece = 1000 // so that it is the other end's buffer that is full
		}
		name := fmt.Sprintf("up %v, %d bytes at a time", up, piece)
		client, server := r.pair(port, next)
		from, to := client, server
		if !up {
			from, to = server, client
		}
		// Nobody reads until the sender cannot go on, or is done.
		sent := make(chan error, 1)
		go func() {
			var err error
			for p := range slices.Chunk(much, piece) {
				_, werr := from.Write(p)
				err = errors.Join(err, werr)
			}
			sent <- errors.Join(err, from.CloseWrite())
		}()
		waitFor(t, "a burden", func() bool { return r.proxy.Light() == 0 })
		got, err := io.ReadAll(to)
		if err != nil || !bytes.Equal(got, much) {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(much))
		}
		if err := <-sent; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.say(to, "thanks")
		r.hear(from, "thanks")
		_, _ = client.Close(), server.Close()
		waitFor(t, "the end of the flow", func() bool { return r.proxy.Connections() == 0 })
	}
}

// TestLightReset: what one end loses the other one does not take for an end.
func TestLightReset(t *testing.T) {
	port, next := peers(t)
	r := raw(t, api.NetPolicy{}, port)
	for name, byClient := range map[string]bool{"client": true, "server": false} {
		for _, half := range []bool{false, true} { // after the end of what the other one says
			client, server := r.pair(port, next)
			from, to := client, server
			if !byClient {
				from, to = server, client
			}
			if half {
				_ = to.CloseWrite()
				if b, err := io.ReadAll(from); err != nil || len(b) > 0 {
					t.Errorf("%q, %v", b, err)
				}
			}
			_ = from.SetLinger(0)
			_ = from.Close()
			if _, err := to.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("reset by the %s (half %v): %v, want ECONNRESET", name, half, err)
			}
			waitFor(t, "the end of the flow", func() bool { return r.proxy.Connections() == 0 })
		}
	}
}

// TestLightHalf: who has ended first gets all of an answer that is more than the loop carries, from an end that has
// ended as well by then.
func TestLightHalf(t *testing.T) {
	port, next := peers(t)
	r := raw(t, api.NetPolicy{}, port)
	answer := bytes.Repeat([]byte("y"), 100<<10)
	for round := range 40 {
		client, server := r.pair(port, next)
		first, last := client, server
		if round%2 == 1 {
			first, last = server, client
		}
		_ = first.CloseWrite()
		if b, err := io.ReadAll(last); err != nil || len(b) > 0 {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := last.Write(answer); err != nil {
			t.Error(err)
		}
		_ = last.Close()
		if b, err := io.ReadAll(first); err != nil || !bytes.Equal(b, answer) {
			t.Fatalf("round %d: %d bytes of %d, %v", round, len(b), len(answer), err)
		}
		_ = first.Close()
		waitFor(t, "the end of the flow", func() bool { return r.proxy.Connections() == 0 })
	}
}

// TestLightUpdate: new rules end the light connections that they forbid, with a denial for
// each, and no others.
func TestLightUpdate(t *testing.T) {
	port, next := peers(t)
	other, others := peers(t)
	r := raw(t, api.NetPolicy{}, port, other)
	stays, there := r.pair(other, others)
	client, server := r.pair(port, next)
	p := api.NetPolicy{Mode: api.NetAllow, Allow: []string{fmt.Sprintf("tcp://raw.test:%d", other)},
		AllowCIDRs: []string{"127.0.0.0/8"}}
	if err := r.Update(p); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{client, server} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v, want ECONNRESET", err)
		}
	}
	if d := r.denials(); len(d) != 1 || d[0].Name != "raw.test" || d[0].Port != port {
		t.Errorf("%+v", d)
	}
	r.expect("what is not allowed any more", r.name(port), unix.EHOSTUNREACH)
	r.say(stays, "still")
	r.hear(there, "still")
	// The address behind the name, too.
	p.AllowCIDRs = nil
	if err := r.Update(p); err != nil {
		t.Fatal(err)
	}
	if _, err := stays.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%v, want ECONNRESET", err)
	}
	r.expect("a name whose address is not allowed any more", r.name(other), unix.EHOSTUNREACH)
	waitFor(t, "the end of all flows", func() bool { return r.proxy.Connections() == 0 })
}

// TestLightClose: with its network, all of a sandbox's light connections end, and another's go on.
func TestLightClose(t *testing.T) {
	port, next := peers(t)
	r := raw(t, api.NetPolicy{}, port)
	var servers []*net.TCPConn
	for range 20 {
		_, s := r.pair(port, next)
		servers = append(servers, s)
	}
	neighbour := raw(t, api.NetPolicy{}, port)
	mine, there := neighbour.pair(port, next)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := r.proxy.Connections(); n != 0 {
		t.Errorf("%d flows", n)
	}
	for _, s := range servers {
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v, want ECONNRESET", err)
		}
	}
	neighbour.say(mine, "still")
	neighbour.hear(there, "still")
}
