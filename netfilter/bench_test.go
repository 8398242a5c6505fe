package netfilter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// loopbackNames is a resolver to which every name is 127.0.0.1.
func loopbackNames(t testing.TB) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA,
				Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m)
	})}
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, pc.LocalAddr().String())
	}}
}

// server serves each connection, and returns its port.
func server(t testing.TB, serve func(net.Conn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
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
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// insider makes sockets in a network, on a thread that is inside for good.
type insider struct{ work chan func() }

func newInsider(t testing.TB, ns *os.File) *insider {
	t.Helper()
	in := &insider{work: make(chan func())}
	ready := make(chan error, 1)
	var enter func()
	enter = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // which never ends
			defer runtime.UnlockOSThread()
			moved := make(chan struct{})
			go func() { defer close(moved); enter() }()
			<-moved
			return
		}
		ready <- unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		for f := range in.work {
			f()
		}
	}
	go enter()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(in.work) })
	return in
}

func (in *insider) dial(to string) (c net.Conn, err error) { return in.dialBy("tcp4", to) }

func (in *insider) dialBy(network, to string) (c net.Conn, err error) {
	done := make(chan struct{})
	in.work <- func() {
		defer close(done)
		var d net.Dialer
		d.SetMultipathTCP(false)
		c, err = d.DialContext(context.Background(), network, to)
	}
	<-done
	return c, err
}

// paths runs a benchmark over loopback alone, and out of a sandbox.
func paths(b *testing.B, serve func(net.Conn), bench func(b *testing.B, dial func() (net.Conn, error))) {
	port := server(b, serve)
	b.Run("direct", func(b *testing.B) {
		bench(b, func() (net.Conn, error) { return net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port)) })
	})
	for _, way := range []Way{"tproxy-hold", "tproxy", "redirect", "per-port"} {
		b.Run(string(way), func(b *testing.B) { bench(b, outOf(b, way, port)) })
	}
}

// outOf dials a server out of a sandbox.
func outOf(b *testing.B, way Way, port uint16) (dial func() (net.Conn, error)) {
	e := newEngine(b, &keeper{})
	e.cfg.Resolver, e.way = loopbackNames(b), way
	n, err := e.Open("a", b.TempDir(), api.NetPolicy{
		Mode: api.NetAllow, Allow: []string{fmt.Sprintf("tcp://raw.test:%d", port)},
		AllowCIDRs: []string{"127.0.0.0/8"},
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	a, err := n.names.Table.Address("raw.test")
	if err != nil {
		b.Fatal(err)
	}
	in := newInsider(b, n.File())
	return func() (net.Conn, error) { return in.dial(netip.AddrPortFrom(a, port).String()) }
}

// BenchmarkHold connects and reads one byte, held and accepted first in turn, and reports
// the medians, and that of the differences.
func BenchmarkHold(b *testing.B) {
	port := server(b, func(c net.Conn) { _, _ = c.Write([]byte{1}) })
	ways := []func() (net.Conn, error){outOf(b, "tproxy-hold", port), outOf(b, "tproxy", port)}
	once := func(dial func() (net.Conn, error)) time.Duration {
		began := time.Now()
		c, err := dial()
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	var times [3][]time.Duration
	for i := 0; b.Loop(); i++ {
		var took [2]time.Duration
		for k := range took {
			k = (k + i) % 2
			took[k] = once(ways[k])
			times[k] = append(times[k], took[k])
		}
		times[2] = append(times[2], took[0]-took[1])
	}
	for k, unit := range []string{"us-held", "us-accepted", "us-more"} {
		slices.Sort(times[k])
		b.ReportMetric(float64(times[k][len(times[k])/2])/1e3, unit)
	}
}

// BenchmarkConnect connects and reads one byte; the name is looked up each time.
func BenchmarkConnect(b *testing.B) {
	paths(b, func(c net.Conn) { _, _ = c.Write([]byte{1}) }, func(b *testing.B, dial func() (net.Conn, error)) {
		one := make([]byte, 1)
		for b.Loop() {
			c, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(one); err != nil {
				b.Fatal(err)
			}
			_ = c.Close()
		}
	})
}

const bulk = 256 << 20

// BenchmarkDownload reads what a server sends as fast as it can.
func BenchmarkDownload(b *testing.B) {
	chunk := make([]byte, 1<<20)
	paths(b, func(c net.Conn) {
		for range bulk / len(chunk) {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}, func(b *testing.B, dial func() (net.Conn, error)) {
		b.SetBytes(bulk)
		buf := make([]byte, 1<<20)
		for b.Loop() {
			c, err := dial()
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf); n != bulk ||
				err != nil {
				b.Fatal(n, err)
			}
			_ = c.Close()
		}
	})
}

// BenchmarkIdle opens networks that nothing happens in, and reports what of this process
// each takes.
func BenchmarkIdle(b *testing.B) {
	k := &keeper{}
	e, dir := newEngine(b, k), b.TempDir()
	var open []*Network
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before, files := inUse(), openFDs(b)
	for b.Loop() {
		n, err := e.Open(fmt.Sprint(len(open)), dir, allowOne, nil)
		if err != nil {
			b.Fatal(err)
		}
		open = append(open, n)
	}
	e.ready.filler.Wait()
	b.ReportMetric(float64(inUse()-before)/float64(len(open)), "B/network")
	b.ReportMetric(float64(openFDs(b)-files-len(k.files))/float64(len(open)), "fds/network")
	for _, n := range open {
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
