package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/netfilter/internal/retry"
	"github.com/hutch-sh/hutch/netfilter/names"
	"github.com/hutch-sh/hutch/netfilter/policy"
	"github.com/hutch-sh/hutch/runtime/api"
)

// synthetic is a range whose addresses are local without a route.
var synthetic = netip.MustParsePrefix("127.99.0.0/16")

// patience bounds waiting for what must happen.
const patience = 30 * time.Second

// rig is a proxy under test, with listeners as in a sandbox, and a name server for the
// host's side.
type rig struct {
	*Proxy
	t     testing.TB
	rules atomic.Pointer[policy.Rules]
	table *names.Table
	hosts *nameServer

	mu        sync.Mutex
	listening map[netip.AddrPort]bool
	denied    []Denial
	failed    []Failure
	news      chan struct{} // one more denial or failure
}

func compile(t testing.TB, p api.NetPolicy) *policy.Rules {
	t.Helper()
	rules, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// allow is a policy for names whose servers are on loopback, as those of all tests are.
func allow(entries ...string) api.NetPolicy {
	return api.NetPolicy{Mode: api.NetAllow, Allow: entries, AllowCIDRs: []string{"127.0.0.0/8"}}
}

func start(t testing.TB, p api.NetPolicy, change ...func(*Config)) *rig {
	t.Helper()
	// processes that fuzz share the namespace
	table, err := names.Open(filepath.Join(t.TempDir(), "names"), synthetic, []byte(strconv.Itoa(os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, table: table, hosts: startNames(t), listening: map[netip.AddrPort]bool{},
		news: make(chan struct{}, 1<<16)}
	r.rules.Store(compile(t, p))
	c := Config{
		Rules: r.rules.Load, Name: table.Name, Synthetic: synthetic, Resolver: r.hosts.resolver(),
		Own: func(netip.Addr) bool { return false },
		Denied: func(d Denial) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.denied = append(r.denied, d)
			r.news <- struct{}{}
		},
		Failed: func(f Failure) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failed = append(r.failed, f)
			r.news <- struct{}{}
		},
	}
	for _, f := range change {
		f(&c)
	}
	r.Proxy = New(c)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// address is where a program in the sandbox finds name: its synthetic address, with a
// listener on that port.
func (r *rig) address(name string, port uint16) netip.AddrPort {
	r.t.Helper()
	a, err := r.table.Address(name)
	if err != nil {
		r.t.Fatal(err)
	}
	at := netip.AddrPortFrom(a, port)
	r.listen(at)
	return at
}

// nameless is a synthetic address that stands for no name until the next one gets its.
func (r *rig) nameless() netip.Addr {
	a := synthetic.Addr().Next()
	for {
		if _, taken := r.table.Name(a); !taken {
			return a
		}
		a = a.Next()
	}
}

func (r *rig) listen(at netip.AddrPort) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listening[at] {
		return
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		r.t.Fatal(err)
	}
	r.listening[at] = true
	go r.ServeTCP(l)
}

// dial is connect(2) in the sandbox.
func (r *rig) dialTo(at netip.AddrPort) *net.TCPConn {
	r.t.Helper()
	conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		r.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) connect(name string, port uint16) *net.TCPConn {
	r.t.Helper()
	return r.dialTo(r.address(name, port))
}

// expectReset connects and sees the connection reset, perhaps so soon that connect itself
// fails. It returns the client's address, when it had one.
func (r *rig) expectReset(what string, at netip.AddrPort) string {
	r.t.Helper()
	r.listen(at)
	conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(at))
	client := ""
	if err == nil {
		defer conn.Close()
		client = conn.LocalAddr().String()
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, unix.ECONNRESET) {
		r.t.Errorf("%s: %v, want ECONNRESET", what, err)
	}
	return client
}

// denial waits for the nth denial.
func (r *rig) denial(n int) Denial {
	r.t.Helper()
	late, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		if len(r.denied) > n {
			d := r.denied[n]
			r.mu.Unlock()
			return d
		}
		r.mu.Unlock()
		select {
		case <-r.news:
		case <-late.Done():
			r.t.Fatalf("no denial %d", n)
		}
	}
}

func (r *rig) denials() []Denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.denied
}

// nameServer is a real one, which answers A and AAAA queries.
type nameServer struct {
	at string

	mu    sync.Mutex
	hosts map[string][][]string // name -> answers, in turn; the last one stays
	asked int
	ttl   uint32 // of answers, in seconds
}

func startNames(t testing.TB) *nameServer {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{at: pc.LocalAddr().String(), hosts: map[string][][]string{}}
	ready, done := make(chan struct{}), make(chan struct{})
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(s.answer),
		NotifyStartedFunc: func() { close(ready) }}
	go func() {
		defer close(done)
		_ = server.ActivateAndServe()
	}()
	<-ready
	t.Cleanup(func() {
		_ = server.Shutdown()
		<-done
	})
	return s
}

// set gives a name addresses: one list for each lookup of A in turn. "=NAME" makes it, and what follows, another name
// of NAME.
func (s *nameServer) set(name string, answers ...[]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name] = answers
}

// lookups counts the questions so far.
func (s *nameServer) lookups() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *nameServer) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, name)
}

func (s *nameServer) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	name := strings.TrimSuffix(q.Question[0].Name, ".")
	s.mu.Lock()
	s.asked++
	ttl := s.ttl
	answers, ok := s.hosts[name]
	if ok && len(answers) > 1 && q.Question[0].Qtype == dns.TypeA {
		s.hosts[name] = answers[1:]
	}
	s.mu.Unlock()
	if !ok {
		m.Rcode = dns.RcodeNameError
		_ = w.WriteMsg(m)
		return
	}
	of := q.Question[0].Name
	for _, text := range answers[0] {
		h := dns.RR_Header{Name: of, Class: dns.ClassINET, Ttl: ttl}
		if target, ok := strings.CutPrefix(text, "="); ok {
			h.Rrtype, of = dns.TypeCNAME, target+"."
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: h, Target: of})
			continue
		}
		a := netip.MustParseAddr(text)
		switch {
		case a.Is4() && q.Question[0].Qtype == dns.TypeA:
			h.Rrtype = dns.TypeA
			m.Answer = append(m.Answer, &dns.A{Hdr: h, A: a.AsSlice()})
		case a.Is6() && q.Question[0].Qtype == dns.TypeAAAA:
			h.Rrtype = dns.TypeAAAA
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
		}
	}
	_ = w.WriteMsg(m)
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.at)
	}}
}

// listener is a server's.
func listener(t testing.TB, at string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// serve runs handle for each connection to a new listener, and waits for them.
func serve(t testing.TB, at string, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l := listener(t, at)
	var wg sync.WaitGroup
	wg.Go(func() {
		var pace retry.Pace
		for {
			conn, err := l.AcceptTCP()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // of TestNoFDs
				pace.Wait(nil)
				continue
			}
			wg.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

// certificate is a self-signed one for names, which pool trusts.
func certificate(t testing.TB, pool *x509.CertPool, hosts ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
}
