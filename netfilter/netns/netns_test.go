package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// TestMain runs the tests in a user namespace of their own, as hutchd runs.
func TestMain(m *testing.M) {
	if os.Getenv("HUTCH_TEST_IN_USERNS") == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), "HUTCH_TEST_IN_USERNS=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if err := cmd.Run(); err != nil {
			os.Stderr.WriteString("in a user namespace: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// eachWay runs a test in every way.
func eachWay(t *testing.T, test func(t *testing.T, n *Namespace)) {
	for _, w := range ways {
		t.Run(string(w), func(t *testing.T) {
			n, err := New(w)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			})
			if w == PerPort {
				if err := n.Apply(Config{TCPPorts: []uint16{80, 443}}); err != nil {
					t.Fatal(err)
				}
			}
			test(t, n)
		})
	}
}

// dial connects from inside.
func dial(n *Namespace, network, to string) (c net.Conn, err error) {
	ierr := n.inside(func() error {
		var d net.Dialer
		d.SetMultipathTCP(false)
		c, err = d.DialContext(context.Background(), network, to)
		return nil
	})
	return c, errors.Join(ierr, err)
}

func checkErrno(t *testing.T, n *Namespace, network, to string, want error) {
	t.Helper()
	c, err := dial(n, network, to)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		t.Errorf("connect to %s %s: %v, want %v", network, to, err, want)
	}
}

// serve lets each connection in, and answers with where it was meant to go.
func serve(t *testing.T, n *Namespace) {
	if n.SYNs != nil {
		answer(t, n, nil)
	}
	accept(t, n)
}

func accept(t *testing.T, n *Namespace) {
	for _, l := range n.TCP {
		go func() {
			for {
				c, err := l.AcceptTCP()
				if err != nil {
					return
				}
				to := c.LocalAddr().String()
				if n.Way == Redirect {
					to = originalDestination(t, c)
				}
				fmt.Fprint(c, to)
				c.Close()
			}
		}()
	}
}

// originalDestination asks conntrack, as the proxy does.
func originalDestination(t *testing.T, c *net.TCPConn) (to string) {
	rc, err := c.SyscallConn()
	if err != nil {
		t.Error(err)
		return ""
	}
	const soOriginalDst = 80 // linux/netfilter_ipv4.h; the answer is a struct sockaddr_in
	_ = rc.Control(func(fd uintptr) {
		m, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, soOriginalDst)
		if err != nil {
			to = err.Error()
			return
		}
		b := m.Multiaddr
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])).String()
	})
	return to
}

// reach fails unless a connection arrives with its own destination.
func reach(t *testing.T, n *Namespace, to string) {
	t.Helper()
	c, err := dial(n, "tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != to {
		t.Errorf("connected to %s, the proxy sees %q, %v", to, got, err)
	}
	if from := c.LocalAddr().String(); strings.HasPrefix(to, "198") && !strings.HasPrefix(from, "127.0.0.1:") {
		t.Errorf("connected to %s from %s, want 127.0.0.1", to, from)
	}
}

func TestNames(t *testing.T) {
	eachWay(t, func(t *testing.T, n *Namespace) {
		serve(t, n)
		reach(t, n, "198.18.0.2:80")
		reach(t, n, "198.19.255.254:443")
		if n.Way != PerPort {
			reach(t, n, "198.18.7.7:50123")
		}
		// Literals fail in the kernel, at once.
		for _, to := range []string{"1.1.1.1:80", "10.0.0.1:80", "169.254.169.254:80", "192.0.2.1:1",
			"[2606:4700::1]:443", "[2001:db8::1]:1"} {
			checkErrno(t, n, "tcp", to, unix.EACCES)
		}
		checkErrno(t, n, "udp", "1.1.1.1:53", unix.EACCES)
		// What listens inside is the sandbox's own affair.
		checkErrno(t, n, "tcp", "127.0.0.1:8080", unix.ECONNREFUSED)
		checkErrno(t, n, "tcp", "[::1]:8080", unix.ECONNREFUSED)
	})
}

// TestListenerPort: who dials the listener itself either does not reach it, or comes
// with a destination that shows it.
func TestListenerPort(t *testing.T) {
	n, err := New(Hold)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	serve(t, n)
	checkErrno(t, n, "tcp", "127.0.0.1:1", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "[::1]:1", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "192.0.2.1:1", unix.EACCES)
	checkErrno(t, n, "tcp", "[2001:db8::1]:1", unix.EACCES)
	checkErrno(t, n, "tcp", "198.18.0.1:1", unix.ECONNREFUSED)
	reach(t, n, "198.18.0.2:1")
	if err := n.Apply(Config{Open: true}); err != nil {
		t.Fatal(err)
	}
	reach(t, n, "192.0.2.1:1") // a literal like any
	if n, err = New(Redirect); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	serve(t, n)
	reach(t, n, "127.0.0.1:1") // the proxy knows that loopback is never redirected
}

func TestResolver(t *testing.T) {
	eachWay(t, func(t *testing.T, n *Namespace) {
		go func() {
			b := make([]byte, 512)
			for {
				k, from, err := n.DNS.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = n.DNS.WriteTo(b[:k], from)
			}
		}()
		c, err := dial(n, "udp", "198.18.0.1:53")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 512)
		if k, err := c.Read(b); err != nil || string(b[:k]) != "question" {
			t.Errorf("resolver: %q, %v", b[:k], err)
		}
		// A datagram to anything else finds a closed port: QUIC falls back at once.
		other, err := dial(n, "udp", "198.18.0.2:443")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		_, _ = other.Write([]byte("hello"))
		if _, err := other.Read(b); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a datagram to a port without udp://: %v, want ECONNREFUSED", err)
		}
	})
}

// TestPing: ping sockets, for which the kernel itself would answer, stay refused.
func TestPing(t *testing.T) {
	eachWay(t, func(t *testing.T, n *Namespace) {
		err := n.inside(func() error {
			// As uid 0 of the namespace's owner raw sockets are possible, ping sockets
			// are a matter of groups.
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
		if !errors.Is(err, unix.EACCES) {
			t.Errorf("ping socket: %v, want EACCES", err)
		}
	})
}

func TestApply(t *testing.T) {
	n, err := New(Hold)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	serve(t, n)
	apply := func(c Config) {
		t.Helper()
		if err := n.Apply(c); err != nil {
			t.Fatal(err)
		}
	}
	checkErrno(t, n, "tcp", "10.1.2.3:80", unix.EACCES)
	apply(Config{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}})
	reach(t, n, "10.1.2.3:80")
	reach(t, n, "[fd00::7]:80")
	checkErrno(t, n, "tcp", "127.0.0.1:80", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "1.1.1.1:80", unix.EACCES)
	checkErrno(t, n, "tcp", "[2606:4700::1]:80", unix.EACCES)
	apply(Config{Open: true})
	reach(t, n, "1.1.1.1:80")
	reach(t, n, "10.1.2.3:80")
	reach(t, n, "198.18.0.2:80")
	reach(t, n, "[2606:4700::1]:80")
	checkErrno(t, n, "tcp", "127.0.0.1:80", unix.ECONNREFUSED)
	checkErrno(t, n, "tcp", "[::1]:80", unix.ECONNREFUSED)
	apply(Config{})
	reach(t, n, "198.18.0.2:80")
	checkErrno(t, n, "tcp", "1.1.1.1:80", unix.EACCES)
	checkErrno(t, n, "tcp", "10.1.2.3:80", unix.EACCES)
	checkErrno(t, n, "tcp", "[2606:4700::1]:80", unix.EACCES)
}

func TestUDP(t *testing.T) {
	eachWay(t, func(t *testing.T, n *Namespace) {
		c := n.config
		c.UDPPorts = []uint16{123, 5353}
		if err := n.Apply(c); err != nil {
			t.Fatal(err)
		}
		c.UDPPorts = []uint16{123}
		if err := n.Apply(c); err != nil {
			t.Fatal(err)
		}
		if len(n.UDP) != 1 {
			t.Fatalf("%d sockets, want 1", len(n.UDP))
		}
		conn, err := dial(n, "udp", "198.18.0.9:123")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("time?")); err != nil {
			t.Fatal(err)
		}
		socket := ipv4.NewPacketConn(n.UDP[0])
		if err := socket.SetControlMessage(ipv4.FlagDst, true); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 512)
		// The first datagram may have come before the option was set.
		if _, err := conn.Write([]byte("time?")); err != nil {
			t.Fatal(err)
		}
		var cm *ipv4.ControlMessage
		var from net.Addr
		for cm == nil {
			var k int
			if k, cm, from, err = socket.ReadFrom(b); err != nil || string(b[:k]) != "time?" {
				t.Fatalf("%q, %v", b[:k], err)
			}
		}
		if cm.Dst.String() != "198.18.0.9" {
			t.Errorf("meant for %v", cm.Dst)
		}
		if _, err := socket.WriteTo([]byte("now"), &ipv4.ControlMessage{Src: cm.Dst}, from); err != nil {
			t.Fatal(err)
		}
		if k, err := conn.Read(b); err != nil || string(b[:k]) != "now" {
			t.Errorf("answer %q, %v", b[:k], err)
		}
	})
}

// TestAdopt: a namespace lives on in its files.
func TestAdopt(t *testing.T) {
	eachWay(t, func(t *testing.T, n *Namespace) {
		files, err := n.Files()
		if err != nil {
			t.Fatal(err)
		}
		if n.SYNs != nil { // of the process that has ended
			_ = n.SYNs.Close()
		}
		next, err := Adopt(files, n.config)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		serve(t, next)
		reach(t, next, "198.18.0.2:80")
		c := n.config
		c.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		if err := next.Apply(c); err != nil {
			t.Fatal(err)
		}
		reach(t, next, "10.1.2.3:80")
	})
}

func TestBest(t *testing.T) {
	none := func(Way) (*Namespace, error) { return nil, fmt.Errorf("try: %w", unix.EOPNOTSUPP) }
	if n, _, err := best(none); err == nil || n != nil {
		t.Errorf("nothing works, and the way is %v, %v", n, err)
	}
	noTProxy := func(w Way) (*Namespace, error) {
		if w.transparent() {
			return nil, unix.ENOENT
		}
		return &Namespace{Way: w}, nil
	}
	if n, why, err := best(noTProxy); err != nil || n.Way != Redirect ||
		!strings.Contains(why, "tproxy: no such file") {
		t.Errorf("without nft_tproxy: %v, %q, %v", n, why, err)
	}
	tooMany := func(Way) (*Namespace, error) { return nil, unix.EMFILE }
	if n, _, err := best(tooMany); !errors.Is(err, unix.EMFILE) {
		t.Errorf("without fds: %v, %v, want EMFILE", n, err)
	}
	n, why, err := Best()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.Way != Hold {
		t.Errorf("this machine: %q, %q", n.Way, why)
	}
}

func BenchmarkNew(b *testing.B) {
	for _, w := range ways {
		b.Run(string(w), func(b *testing.B) {
			for b.Loop() {
				n, err := New(w)
				if err != nil {
					b.Fatal(err)
				}
				n.Close()
			}
		})
	}
}
