package network_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil { // with its key identifier, which new OpenSSL wants to see
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// certificate is one for these names.
func (a *authority) certificate(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// tlsServer serves h for these names on one address, and returns its port and what the
// sandbox must trust.
func tlsServer(t testing.TB, h http.Handler, names ...string) (port uint16, ca string) {
	t.Helper()
	a := newAuthority(t)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.certificate(t, names...)}, MinVersion: tls.VersionTLS12}
	// it tells of connections that were refused
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return portOf(t, s.Listener.Addr()), a.pem
}

func (w *netWorld) trust(t testing.TB, sandbox, ca string) {
	t.Helper()
	res, err := w.c.ExecRun(t.Context(), api.ExecParams{Sandbox: sandbox, Command: "cat >/tmp/ca.pem", Stdin: ca},
		nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "hello %s\n", r.Host) }

// TestNetworkClients: programs that know nothing of a proxy, of which each has a resolver
// and a TLS of its own, each reach a name that is allowed and none that is not, also where
// the server of both is the same.
func TestNetworkClients(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	world.Needs(t, "curl", "git")
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"good.test", "evil.test"})
	mux := http.NewServeMux()
	mux.HandleFunc("/", hello)
	mux.Handle("/repo.git/", gitServer(t, w.Sub(t, "git")))
	port, ca := tlsServer(t, mux, "good.test", "evil.test")
	sb := w.allowing(t, fmt.Sprintf("good.test:%d", port))
	w.trust(t, sb, ca)
	fetch, err := filepath.Abs("testdata/Fetch.java")
	if err != nil {
		t.Fatal(err)
	}
	w.OK(t, "cp", fetch, sb+":/tmp/Fetch.java")
	for name, client := range map[string]struct{ command, says, fails string }{
		"curl":   {"curl -sS --cacert /tmp/ca.pem %s", "hello good.test", "Could not resolve host"},
		"http1":  {"curl -sS --http1.1 --cacert /tmp/ca.pem %s", "hello good.test", "Could not resolve host"},
		"python": {`python3 -c 'import ssl, sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile="/tmp/ca.pem")).read().decode())' %s`, "hello good.test", "Name or service not known"},
		"node":   {`NODE_EXTRA_CA_CERTS=/tmp/ca.pem node -e 'fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.error(e.cause); process.exit(1) })' %s`, "hello good.test", "ENOTFOUND"},
		"java":   {"java /tmp/Fetch.java %s", "hello good.test", "ConnectException"},
		"git": {"git -c http.sslCAInfo=/tmp/ca.pem ls-remote %srepo.git", "refs/heads/main",
			"Could not resolve host"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "node" || name == "java" {
				world.NeedsInside(t, "/usr/bin/"+name)
			}
			w.fetches(t, sb, fmt.Sprintf(client.command, fmt.Sprintf("https://good.test:%d/", port)), client.says)
			w.denied(t, sb, fmt.Sprintf(client.command, fmt.Sprintf("https://evil.test:%d/", port)), client.fails,
				byName("evil.test", "mode allow"))
		})
	}
	// The address of the good name, with the name of the evil one in the stream.
	spoof := fmt.Sprintf("curl -sS --cacert /tmp/ca.pem --connect-to evil.test:%d:good.test:%d https://evil.test:%d/",
		port, port, port)
	w.denied(t, sb, spoof, "unrecognized name", func(d api.Denial) bool { return d.Port == port && d.Why != "" })
	// In mode open it is the block list that speaks.
	open := w.box(t, api.NetPolicy{Mode: api.NetOpen, Block: []string{"evil.test"}, AllowCIDRs: loopback})
	w.trust(t, open, ca)
	w.fetches(t, open, fmt.Sprintf("curl -sS --cacert /tmp/ca.pem https://good.test:%d/", port), "hello good.test")
	w.denied(t, open, spoof, "", func(d api.Denial) bool { return d.Port == port && d.Rule == "block evil.test" })
	w.OK(t, "rm", "-f", sb, open)
}

// gitServer serves a repository with one commit, below /repo.git.
func gitServer(t testing.TB, dir string) http.Handler {
	t.Helper()
	repo := filepath.Join(dir, "repo.git")
	git := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.test",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.test")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main", "--bare", repo)
	git("init", "-q", "-b", "main", filepath.Join(dir, "work"))
	git("-C", filepath.Join(dir, "work"), "commit", "-q", "--allow-empty", "-m", "first")
	git("-C", filepath.Join(dir, "work"), "push", "-q", repo, "main")
	return &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend",
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
	}
}

// TestNetworkUDP: datagrams go where udp:// says and nowhere else, and a port that is not
// open answers at once.
func TestNetworkUDP(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(append([]byte("echo "), b[:n]...), from)
		}
	})
	t.Cleanup(func() { _ = pc.Close(); wg.Wait() })
	port := portOf(t, pc.LocalAddr())
	send := func(to string, port uint16) string {
		return fmt.Sprintf(`python3 -c '
import errno, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
try:
    s.connect(("%s", %d))
    s.send(b"hello")
    print(s.recv(100).decode())
except socket.gaierror as e:
    sys.exit("gaierror %%s" %% e)
except OSError as e:
    sys.exit(errno.errorcode.get(e.errno, str(e)))
'`, to, port)
	}
	for _, way := range []string{"tproxy", "redirect", "per-port"} {
		t.Run(way, func(t *testing.T) {
			w := newNetWorld(t, []string{"time.test", "other.test"}, "HUTCH_NETWORK_WAY="+way)
			sb := w.allowing(t, fmt.Sprintf("udp://time.test:%d", port), "other.test")
			w.fetches(t, sb, send("time.test", port), "echo hello")
			for name, at := range map[string]uint16{"time.test": port - 1, "other.test": 443} { // QUIC falls back
				if enforcement() == "ebpf" {
					w.denied(t, sb, send(name, at), "EACCES", byName(name, "mode allow"))
				} else {
					w.denied(t, sb, send(name, at), "ECONNREFUSED", nil)
				}
			}
			w.denied(t, sb, send("evil.test", port), "gaierror", byName("evil.test", "mode allow"))
			w.denied(t, sb, send("10.0.0.1", port), "EACCES", nil)
			// The policy changes under way.
			if _, err := w.c.UpdateNetwork(t.Context(),
				api.NetUpdateParams{Sandbox: sb,
					Remove: &api.NetLists{Allow: []string{fmt.Sprintf("udp://time.test:%d", port)}},
					Add:    &api.NetLists{Allow: []string{fmt.Sprintf("udp://other.test:%d", port)}}}); err != nil {
				t.Fatal(err)
			}
			w.fetches(t, sb, send("other.test", port), "echo hello")
			w.denied(t, sb, send("time.test", port), "gaierror", byName("time.test", "mode allow"))
			w.OK(t, "rm", "-f", sb)
		})
	}
}

// TestNetworkSelf: what is inside stays inside: a server on loopback is the sandbox's own,
// also on ports that are taken outside, and no abstract socket of the host can be seen.
func TestNetworkSelf(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "outside")
	abstract := fmt.Sprintf("@hutch-test-%d", os.Getpid())
	l, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", port))
	w.fetches(t, sb, fmt.Sprintf(`python3 -c '
import http.server, threading, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"inside")
    def log_message(self, *a): pass
for port in (%d, 80, 443, 1, 53):
    s = http.server.HTTPServer(("127.0.0.1", port), H)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    assert urllib.request.urlopen("http://127.0.0.1:%%d/" %% port).read() == b"inside", port
print("all inside", urllib.request.urlopen("http://web.test:%d/").read().decode())
'`, port, port), "all inside outside")
	w.denied(t, sb, fmt.Sprintf(`python3 -c '
import errno, socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect("\0%s")
except OSError as e: sys.exit(errno.errorcode[e.errno])
'`, abstract[1:]), "ECONNREFUSED", nil)
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkKernel: the doors around TCP and UDP are shut: root inside changes nothing of
// its network, and no other kind of socket leads out. What is "done" are the twins.
func TestNetworkKernel(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	sb := w.box(t, api.NetPolicy{Mode: api.NetOpen})
	for what, c := range map[string]struct{ program, errno string }{
		"TCP":           {"socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 6)", "done"},
		"UDP":           {"socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 17)", "done"},
		"MPTCP":         {"socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)", "done EPROTONOSUPPORT"},
		"keepalive":     {"socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)", "done"},
		"eventfd":       {"syscall(290, 0, 0)", "done"},
		"read a sysctl": {"open('/proc/sys/net/ipv4/ip_unprivileged_port_start').read()", "done"},
		"ping socket": {"socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)",
			"EACCES EPERM EPROTONOSUPPORT"},
		"raw socket":    {"socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)", "EPERM"},
		"packet socket": {"socket.socket(17, socket.SOCK_RAW)", "EPERM EAFNOSUPPORT"},
		"vsock":         {"socket.socket(40, socket.SOCK_STREAM)", "EPERM EAFNOSUPPORT"},
		"UDP-Lite":      {"socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136)", "EPROTONOSUPPORT"},
		"SCTP":          {"socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)", "EPROTONOSUPPORT EPERM EACCES"},
		"nf_tables":     {"s = socket.socket(16, socket.SOCK_RAW, 12); s.bind((0, 0)); s.send(bytes.fromhex('14000000020a0501000000000000000002000000')); e = struct.unpack_from('i', s.recv(99), 16)[0]; raise OSError(-e, 'nf_tables')", "EPERM EAFNOSUPPORT EPROTONOSUPPORT"},
		"routes":        {"s = socket.socket(16, socket.SOCK_RAW, 0); s.send(bytes.fromhex('1c0000001900050000000000000000000200000003000000fe00000100000000')[:28]); e = struct.unpack_from('i', s.recv(99), 16)[0]; raise OSError(-e, 'routes')", "EPERM EAFNOSUPPORT EPROTONOSUPPORT"},
		"transparent":   {"socket.socket().setsockopt(0, 19, 1)", "EPERM"},
		"io_uring":      {"syscall(425, 8, ctypes.create_string_buffer(200))", "ENOSYS"},
		"sysctl": {"open('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'w').write('1024')",
			"EROFS EACCES EPERM"},
	} {
		res := w.in(t, sb, `python3 -c "
import ctypes, errno, socket, struct, sys
def syscall(*args):
    if ctypes.CDLL(None, use_errno=True).syscall(*args) < 0: raise OSError(ctypes.get_errno(), 'syscall')
try:
    `+c.program+`
    print('done')
except OSError as e:
    print(errno.errorcode.get(e.errno, e.errno))
"`)
		got := strings.TrimSpace(res.Stdout)
		if !slices.Contains(strings.Fields(c.errno), got) {
			t.Errorf("%s: %q, want one of %s; stderr %q", what, got, c.errno, res.Stderr)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkSockets: however a program makes its connection, it reaches what it may and
// nothing else.
func TestNetworkSockets(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	port := webServer(t, "hello")
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", port))
	for what, connect := range map[string]string{
		"plain":       "s = socket.socket(); s.connect((to, port))",
		"v4-mapped":   "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:' + to, port))",
		"MPTCP":       "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect((to, port))",
		"fast open":   "s = socket.socket(); s.sendto(request, 0x20000000, (to, port)); request = b''",
		"bound":       "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect((to, port))",
		"bound to it": "s = socket.socket(); s.bind((synthetic, 0)); s.connect((to, port))",
		"nonblocking": "s = socket.socket(); s.setblocking(False); e = s.connect_ex((to, port)); select.select([], [s], [], 10); e = e if e != errno.EINPROGRESS else s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR); e and sys.exit(errno.errorcode[e]); s.setblocking(True)",
	} {
		program := func(to string) string {
			return fmt.Sprintf(`python3 -c "
import errno, select, socket, sys
port, synthetic = %d, socket.gethostbyname('web.test')
to = %s
request = b'GET / HTTP/1.0\r\nHost: web.test:%%d\r\n\r\n' %% port
try:
    %s
    s.settimeout(10)
    if request: s.send(request)
    got = b''
    while True:
        more = s.recv(1000)
        if not more: break
        got += more
    print(got.decode())
except OSError as e:
    sys.exit(errno.errorcode.get(e.errno, str(e)))
"`, port, to, connect)
		}
		t.Run(what, func(t *testing.T) {
			w.fetches(t, sb, program("synthetic"), "hello")
			w.denied(t, sb, program("'10.0.0.1'"), "EACCES", nil)
		})
	}
	w.OK(t, "rm", "-f", sb)
}
