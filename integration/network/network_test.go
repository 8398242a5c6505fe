package network_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// zone is a DNS server on loopback that knows what a test tells it.
type zone struct {
	addr string

	mu    sync.Mutex
	names map[string][]netip.Addr
	asked map[string]int
}

var localhost = netip.MustParseAddr("127.0.0.1")

func newZone(t testing.TB, names ...string) *zone {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{addr: pc.LocalAddr().String(), names: map[string][]netip.Addr{}, asked: map[string]int{}}
	for _, name := range names {
		z.set(name, localhost)
	}
	var wg sync.WaitGroup
	wg.Go(func() { z.serve(pc) })
	t.Cleanup(func() { _ = pc.Close(); wg.Wait() })
	return z
}

// set makes name have these addresses from now on.
func (z *zone) set(name string, addrs ...netip.Addr) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names[name] = addrs
}

// questions are the names that were asked for.
func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Sorted(maps.Keys(z.asked))
}

func (z *zone) serve(pc net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := z.answer(buf[:n]); reply != nil {
			_, _ = pc.WriteTo(reply, from)
		}
	}
}

func (z *zone) answer(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	z.mu.Lock()
	addrs, known := z.names[name]
	z.asked[name]++
	z.mu.Unlock()
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
		Questions: m.Questions}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			reply.Answers = append(reply.Answers,
				dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			reply.Answers = append(reply.Answers,
				dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, err := reply.Pack()
	if err != nil {
		return nil
	}
	return b
}

// netWorld is a world whose sandboxes' names are looked up in a zone.
type netWorld struct {
	*world.World
	*zone
	c *hutch.Client
}

func newNetWorld(t testing.TB, names []string, vars ...string) *netWorld {
	t.Helper()
	z := newZone(t, names...)
	w := world.New(t, append(vars, "HUTCH_NETWORK_RESOLVER="+z.addr)...)
	w.LogOnFailure(t)
	return &netWorld{World: w, zone: z, c: w.Connect(t)}
}

// loopback lets names lead to servers of the test.
var loopback = []string{"127.0.0.0/8"}

// allowing makes a sandbox that may reach these names on loopback.
func (w *netWorld) allowing(t testing.TB, allow ...string) string {
	t.Helper()
	return w.box(t, api.NetPolicy{Mode: api.NetAllow, Allow: allow, AllowCIDRs: loopback})
}

func (w *netWorld) box(t testing.TB, p api.NetPolicy) string {
	t.Helper()
	sb, err := w.c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", Network: p}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := enforcement(); sb.Isolation.Enforcement != want {
		t.Errorf("enforcement %q, want %q: %+v", sb.Isolation.Enforcement, want, sb.Isolation.Walls)
	}
	return sb.ID
}

// enforcement is what policies are enforced by.
func enforcement() string {
	if hasEBPF() {
		return "ebpf"
	}
	return "proxy"
}

// hasEBPF looks once, as a daemon does.
var hasEBPF = sync.OnceValue(func() bool { return probe.EBPF().Status == probe.Yes })

// closed is what connect says of a port that the policy does not name: the kernel refuses it, or
// the proxy, in its way.
func closed(byProxy string) string {
	if enforcement() == "ebpf" {
		return "EACCES"
	}
	return byProxy
}

// in runs a command line inside.
func (w *netWorld) in(t testing.TB, sandbox, command string) api.ExecResult {
	t.Helper()
	res, err := w.c.ExecRun(t.Context(), api.ExecParams{Sandbox: sandbox, Command: command}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// fetches fails unless the command prints what the server says.
func (w *netWorld) fetches(t testing.TB, sandbox, command, want string) {
	t.Helper()
	if res := w.in(t, sandbox, command); res.ExitCode != 0 || !strings.Contains(res.Stdout, want) ||
		len(res.Denials) > 0 {
		t.Errorf("%s: exit code %d, stdout %q, want %q, stderr %q, denials %+v", command, res.ExitCode, res.Stdout,
			want, res.Stderr, res.Denials)
	}
}

// denied fails unless the command is refused, says so in its output, and the refusal is
// in its result.
func (w *netWorld) denied(t testing.TB, sandbox, command, want string, match func(api.Denial) bool) {
	t.Helper()
	res := w.in(t, sandbox, command)
	if res.ExitCode == 0 || !strings.Contains(res.Stdout+res.Stderr, want) {
		t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", command, res.ExitCode, res.Stdout, res.Stderr, want)
	}
	if match == nil { // the kernel refuses that, and tells nobody but the program
		return
	}
	if !slices.ContainsFunc(res.Denials, match) {
		t.Errorf("%s: denials %+v", command, res.Denials)
	}
	n, err := w.c.Network(t.Context(), sandbox)
	if err != nil || !slices.ContainsFunc(n.Denials, match) {
		t.Errorf("%s: network.get: %+v, %v", command, n.Denials, err)
	}
}

func byName(name, rule string) func(api.Denial) bool {
	return func(d api.Denial) bool {
		return d.Kind == api.KindNet && d.Name == name && strings.HasPrefix(d.Rule, rule) && d.Why != ""
	}
}

// webServer is an HTTP server on loopback that says hello, and its port.
func webServer(t testing.TB, hello string) uint16 {
	t.Helper()
	return handled(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s\n", hello, r.Host)
	}))
}

// handled is the port of an HTTP server on loopback with this handler.
func handled(t testing.TB, h http.Handler) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = s.Close(); wg.Wait() })
	return portOf(t, l.Addr())
}

func portOf(t testing.TB, a net.Addr) uint16 {
	t.Helper()
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		t.Fatal(err)
	}
	return p.Port()
}

// connecting is a program that connects and prints the errno.
func connecting(to string, port uint16) string {
	return fmt.Sprintf(`python3 -c '
import errno, socket, sys
try:
    s = socket.create_connection(("%s", %d), 10)
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    sys.stdout.write(s.recv(100).decode())
except socket.gaierror as e:
    sys.exit("gaierror %%s" %% e)
except OSError as e:
    sys.exit(errno.errorcode.get(e.errno, str(e)))
'`, to, port)
}

// TestNetworkAllow: a sandbox reaches the names that it may, and nothing else.
func TestNetworkAllow(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel, testenv.EBPF)
	testenv.Smoke(t)
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test", "a.wild.test", "wild.test"})
	port := webServer(t, "hello")
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	sb := w.allowing(t, at("web.test"), at("*.wild.test"))

	w.fetches(t, sb, "curl -sS http://"+at("web.test"), "hello "+at("web.test"))
	w.fetches(t, sb, "curl -sS http://"+at("a.wild.test"), "hello")
	for _, name := range []string{"other.test", "wild.test", "xwild.test", "web.test.evil.test"} {
		w.denied(t, sb, "curl -sS http://"+at(name), "Could not resolve host", byName(name, "mode allow"))
	}
	// Another port of an allowed name.
	var literal func(api.Denial) bool
	if enforcement() == "ebpf" {
		literal = func(d api.Denial) bool { return d.Name == "" && d.Address != "" && d.Port != 0 && d.Why != "" }
	}
	w.denied(t, sb, connecting("web.test", 1), closed(w.forbidden(t, sb)), byName("web.test", "mode allow"))
	// The wrong Host.
	w.denied(t, sb, "curl -sSf -H 'Host: other.test' http://"+at("web.test"), "403", byName("web.test", ""))
	// Addresses without a name fail in the kernel, at once; the server's own as well.
	for _, to := range []string{"192.0.2.1", "10.0.0.1", "169.254.169.254", "2606:4700::1111", "192.0.2.1"} {
		w.denied(t, sb, connecting(to, 443), "EACCES", literal)
	}
	w.denied(t, sb, connecting("192.0.2.1", 1), "EACCES", literal) // the proxy's listener
	w.denied(t, sb, connecting("127.0.0.1", port), "ECONNREFUSED", nil)
	w.denied(t, sb, connecting("::1", port), "ECONNREFUSED", nil)
	// An address that stands for nothing.
	w.denied(t, sb, connecting("198.18.77.77", port), closed(w.forbidden(t, sb)),
		func(d api.Denial) bool { return d.Address == "198.18.77.77" && d.Port == port })
	if asked := w.questions(); !slices.Equal(asked, []string{"a.wild.test", "web.test"}) {
		t.Errorf("names that left the sandbox: %q", asked)
	}
	rec, err := w.c.GetSandbox(t.Context(), sb)
	if err != nil {
		t.Fatal(err)
	}
	for _, wall := range rec.Isolation.Walls {
		if wall.Name == "network" && !strings.Contains(wall.Detail, "tproxy") {
			t.Errorf("%+v", wall)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkRebinding: an address that a name has only later is checked as well.
func TestNetworkRebinding(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	at := "web.test:" + strconv.Itoa(int(port))
	// Without loopback being allowed the very same name is refused.
	sb := w.box(t, api.NetPolicy{Mode: api.NetAllow, Allow: []string{at}})
	w.denied(t, sb, "curl -sSf http://"+at, "403", byName("web.test", "loopback address"))
	allowed := w.allowing(t, at)
	w.fetches(t, allowed, "curl -sS http://"+at, "hello")
	for _, a := range []string{"10.1.2.3", "169.254.169.254", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00::1"} {
		w.set("web.test", netip.MustParseAddr(a))
		w.denied(t, allowed, "curl -sSf http://"+at, "403", byName("web.test", ""))
	}
	w.set("web.test", localhost)
	w.fetches(t, allowed, "curl -sS http://"+at, "hello")
	w.OK(t, "rm", "-f", sb, allowed)
}

// hold is a server that says hello and keeps the connection until the test ends; the
// channel gets each connection's end.
func hold(t testing.TB) (port uint16, ends <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, "hello\n")
				_, err := io.Copy(io.Discard, c)
				ended <- err
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return portOf(t, l.Addr()), ended
}

// talker is a command that connects, prints what comes, and tells how it ended.
func talker(name string, port uint16) string {
	return fmt.Sprintf(`python3 -u -c '
import socket
s = socket.create_connection(("%s", %d))
print(s.recv(100).decode().strip())
try:
    print("end", len(s.recv(100)))
except OSError as e:
    print("end", e.errno)
'`, name, port)
}

// TestNetworkUpdate: a policy that changes closes the connections that it forbids, leaves
// the others alone, and is in force for new ones.
func TestNetworkUpdate(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"one.test", "two.test"})
	port, ends := hold(t)
	one, two := fmt.Sprintf("tcp://one.test:%d", port), fmt.Sprintf("tcp://two.test:%d", port)
	sb := w.allowing(t, one, two)
	start := func(name string) *world.Client {
		c := w.Launch(t, "exec", sb, "--", "sh", "-c", talker(name, port))
		c.Await(t, "hello")
		return c
	}
	first, second := start("one.test"), start("two.test")
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb, Remove: &api.NetLists{Allow: []string{one}}}); err != nil {
		t.Fatal(err)
	}
	first.Await(t, "end 104") // ECONNRESET
	world.Await(t, first.Cmd)
	<-ends
	w.denied(t, sb, connecting("one.test", port), "gaierror", byName("one.test", "mode allow"))
	select {
	case err := <-ends:
		t.Errorf("the connection that is still allowed ended: %v", err)
	default:
	}
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb, Network: &api.NetPolicy{Mode: api.NetNone}}); err != nil {
		t.Fatal(err)
	}
	second.Await(t, "end 104")
	world.Await(t, second.Cmd)
	<-ends
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkRestart: connections end with hutchd, and everything else goes on with the
// next one, under the same policy and the same addresses.
func TestNetworkRestart(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	world.NeedsPython(t)
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test", "raw.test"})
	web := webServer(t, "hello")
	port, ends := hold(t)
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", web), fmt.Sprintf("tcp://raw.test:%d", port))
	before := w.in(t, sb, "getent hosts web.test").Stdout
	if !strings.HasPrefix(before, "198.1") {
		t.Errorf("address %q", before)
	}
	c := w.Launch(t, "exec", sb, "--", "sh", "-c", talker("raw.test", port))
	c.Await(t, "hello")
	world.Kill(t, w.Daemon(t).Hutchd)
	<-ends // no connection is left that nobody checks
	_ = world.Await(t, c.Cmd)
	w.c = w.Connect(t)
	if after := w.in(t, sb, "getent hosts web.test").Stdout; after != before {
		t.Errorf("address %q, before %q", after, before)
	}
	w.fetches(t, sb, fmt.Sprintf("curl -sS http://web.test:%d", web), "hello")
	w.denied(t, sb, connecting("other.test", web), "gaierror", byName("other.test", "mode allow"))
	w.denied(t, sb, connecting("192.0.2.7", web), "EACCES", nil)
	// A policy that changes after that.
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb,
			Add: &api.NetLists{Allow: []string{fmt.Sprintf("other.test:%d", web)}}}); err != nil {
		t.Fatal(err)
	}
	w.set("other.test", localhost)
	w.fetches(t, sb, fmt.Sprintf("curl -sS http://other.test:%d", web), "hello")
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkOpen: everything but what is blocked, and never the host's own networks.
func TestNetworkOpen(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "evil.test"})
	port := webServer(t, "hello")
	sb := w.box(t, api.NetPolicy{Mode: api.NetOpen, Block: []string{"evil.test"}, AllowCIDRs: loopback})
	at := func(name string) string { return fmt.Sprintf("%s:%d", name, port) }
	w.fetches(t, sb, "curl -sS http://"+at("web.test"), "hello")
	w.denied(t, sb, "curl -sS http://"+at("evil.test"), "Could not resolve", byName("evil.test", "block evil.test"))
	w.denied(t, sb, "curl -sS -H 'Host: evil.test' -f http://"+at("web.test"), "", byName("web.test", ""))
	// Literals come to the proxy, which knows what they are.
	for to, is := range map[string]string{
		"10.0.0.1": "10.0.0.1", "169.254.169.254": "169.254.169.254", "fd00::1": "fd00::1",
		// and the same in other spellings
		"012.0.0.2": "10.0.0.2", "0xa000003": "10.0.0.3", "167772164": "10.0.0.4", "::ffff:10.0.0.5": "10.0.0.5",
		"64:ff9b::a00:6": "64:ff9b::a00:6",
	} {
		w.denied(t, sb, connecting(to, port), w.forbidden(t, sb), func(d api.Denial) bool {
			return d.Address == is &&
				d.HowToAllow != ""
		})
	}
	// Whatever resolver is asked, ours answers.
	w.fetches(t, sb, `python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
s.connect(("192.0.2.53", 53))
s.send(bytes.fromhex("beef01000001000000000000") + b"\3web\4test\0" + bytes.fromhex("00010001"))
print("answer" if s.recv(500)[:4] == bytes.fromhex("beef8180") else "no")
'`, "answer")
	w.OK(t, "rm", "-f", sb)
}
