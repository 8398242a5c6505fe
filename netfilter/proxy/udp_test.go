package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// udpServer answers each datagram with what answer makes of it.
func udpServer(t testing.TB, at string, answer func([]byte) []byte) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := pc.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if reply := answer(b[:n]); err == nil && reply != nil {
				_, _ = pc.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(func() { pc.Close(); wg.Wait() })
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

// datagrams lets the sandbox of r send to a port of its synthetic addresses.
func (r *rig) datagrams(name string, port uint16) netip.AddrPort {
	r.t.Helper()
	a, err := r.table.Address(name)
	if err != nil {
		r.t.Fatal(err)
	}
	at := netip.AddrPortFrom(a, port)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listening[at] {
		return at
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		r.t.Fatal(err)
	}
	d, err := NewDatagrams(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	r.listening[at] = true
	go r.ServeUDP(d)
	return at
}

func (r *rig) udpDial(at netip.AddrPort) *net.UDPConn {
	r.t.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at)) // connected: only answers from at arrive
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// exchangeUDP sends until an answer comes, as programs do: a flow may just be ending.
func exchangeUDP(c *net.UDPConn, sent string) (string, error) {
	b := make([]byte, maxDatagram)
	for deadline := time.Now().Add(patience); ; {
		if _, err := c.Write([]byte(sent)); err != nil {
			return "", err
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := c.Read(b)
		if err == nil || time.Now().After(deadline) {
			return string(b[:n]), err
		}
	}
}

// TestUDP: datagrams to a name and port that udp:// allows get answers; others do not.
func TestUDP(t *testing.T) {
	server := udpServer(t, "127.0.0.1:9123", func(b []byte) []byte { return append([]byte("re:"), b...) })
	r := start(t, allow("udp://time.test:9123", "tcp://tcp.test:9123", "udp://private.test:9123"))
	r.hosts.set("time.test", []string{"127.0.0.1"})
	r.hosts.set("private.test", []string{"10.0.0.1"})
	at := r.datagrams("time.test", server.Port())
	a, b := r.udpDial(at), r.udpDial(at)
	for i := range 3 {
		for who, c := range map[string]*net.UDPConn{"a": a, "b": b} {
			sent := fmt.Sprint(who, i)
			if got, err := exchangeUDP(c, sent); err != nil || got != "re:"+sent {
				t.Errorf("%s: %q, %v", sent, got, err)
			}
		}
	}
	if got, err := exchangeUDP(a, ""); err != nil || got != "re:" {
		t.Errorf("an empty datagram: %q, %v", got, err)
	}
	large := strings.Repeat("x", 60_000)
	if got, err := exchangeUDP(a, large); err != nil || got != "re:"+large {
		t.Errorf("a large datagram: %d bytes, %v", len(got), err)
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
	// A datagram is counted when it has been sent, which the answer does not wait for.
	waitFor(t, func() bool {
		all := r.Counts()
		return len(all) == 1 && all[0].Rule == "allow udp://time.test:9123" && all[0].Connections == 2 &&
			all[0].BytesUp == uint64(len(large)+12)
	})

	for i, name := range []string{"tcp.test", "other.test", "private.test"} {
		c := r.udpDial(r.datagrams(name, server.Port()))
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("again")); err != nil {
			t.Fatal(err)
		}
		if d := r.denial(i); d.Name != name || d.Proto != "udp" || d.Port != 9123 || d.Why == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestUDPLife: flows end when nothing comes, when the rules change, and there are only so
// many.
func TestUDPLife(t *testing.T) {
	server := udpServer(t, "127.0.0.1:9123", func(b []byte) []byte { return b })
	p := allow("udp://a.test:9123")
	r := start(t, p, func(c *Config) { c.Limits.UDPIdle = 200 * time.Millisecond })
	r.hosts.set("a.test", []string{"127.0.0.1"})
	c := r.udpDial(r.datagrams("a.test", server.Port()))
	for range 2 {
		if got, err := exchangeUDP(c, "x"); err != nil || got != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		waitFor(t, func() bool { return r.udpFlows() == 0 })
	}
	r.Close()

	r = start(t, p, func(c *Config) { c.Limits.UDPFlows = 3 })
	r.hosts.set("a.test", []string{"127.0.0.1"})
	at := r.datagrams("a.test", server.Port())
	var conns []*net.UDPConn
	for range 3 {
		c := r.udpDial(at)
		if _, err := exchangeUDP(c, "x"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	many := r.udpDial(at)
	if _, err := many.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if d := r.denial(0); d.Rule != "connection limit" {
		t.Errorf("%+v", d)
	}
	r.rules.Store(compile(t, allow("udp://b.test:9123")))
	r.Recheck()
	waitFor(t, func() bool { return r.udpFlows() == 0 })
	if n := len(r.denials()); n != 4 {
		t.Errorf("%d denials", n)
	}
	if _, err := conns[0].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if d := r.denial(4); d.Rule != "mode allow" {
		t.Errorf("%+v", d)
	}
	_ = conns[0].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := conns[0].Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer for a flow that is forbidden: %v", err)
	}
}

func (p *Proxy) udpFlows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.udp)
}
