package network_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// sending sends bytes as they are to NAME PORT, and succeeds when the server's answer to
// /evil comes back.
const sending = `cat >/tmp/send.py <<'END'
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
try:
    s.sendall(sys.stdin.buffer.read())
    s.shutdown(socket.SHUT_WR)
    got = b""
    while more := s.recv(4096): got += more
except OSError as e: got += b" %s" % str(e).encode()
print(got.decode("latin-1"))
sys.exit(b"seen /evil" not in got)
END`

// greeting sends a ClientHello for a server name to NAME PORT in pieces, and succeeds when
// a handshake follows.
const greeting = `cat >/tmp/greet.py <<'END'
import socket, ssl, sys
name, port, sni, piece = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
tls = ssl.create_default_context(cafile="/tmp/ca.pem")
tls.check_hostname = bool(sni)
s = socket.create_connection((name, port), 10)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
o = tls.wrap_bio(incoming, outgoing, server_hostname=sni or None)
while True:
    try:
        o.do_handshake()
        break
    except ssl.SSLWantReadError: pass
    except ssl.SSLError as e: sys.exit(str(e))
    out = outgoing.read()
    for i in range(0, len(out), piece): s.sendall(out[i:i + piece])
    more = s.recv(4096)
    if more: incoming.write(more)
    else: incoming.write_eof()
print("hands shaken with", sni)
END`

// TestNetworkStreams: a name that is allowed does not open others behind the same address,
// however a stream is made to ask for them.
func TestNetworkStreams(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test", "other.test"})
	var seen atomic.Int64 // requests for /evil
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/evil" {
			seen.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "seen %s at %s", r.URL.Path, r.Host)
	})
	port := handled(t, handler)
	secure, ca := tlsServer(t, handler, "web.test", "other.test", "xweb.test", "a.web.test")
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", port), fmt.Sprintf("web.test:%d", secure), "web.test")
	w.trust(t, sb, ca)
	w.in(t, sb, sending)
	w.in(t, sb, greeting)

	at := fmt.Sprintf("Host: web.test:%d\r\n", port)
	other := fmt.Sprintf("Host: other.test:%d\r\n", port)
	const good, evil = "GET / HTTP/1.1\r\n", "GET /evil HTTP/1.1\r\n"
	for what, tt := range map[string]struct{ allowed, refused string }{
		"the host":  {evil + at + "\r\n", evil + other + "\r\n"},
		"pipelined": {good + at + "\r\n" + evil + at + "\r\n", good + at + "\r\n" + evil + other + "\r\n"},
		"absolute": {fmt.Sprintf("GET http://web.test:%d/evil HTTP/1.1\r\n", port) + at + "\r\n",
			fmt.Sprintf("GET http://other.test:%d/evil HTTP/1.1\r\n", port) + at + "\r\n"},
		"two hosts":     {evil + at + "\r\n", evil + at + other + "\r\n"},
		"two, reversed": {evil + at + "\r\n", evil + other + at + "\r\n"},
		"no host":       {evil + at + "\r\n", evil + "\r\n"},
		"a space":       {evil + at + "\r\n", evil + "Host :" + at[5:] + "\r\n"},
		"both lengths": {"POST /evil HTTP/1.1\r\n" + at + "Content-Length: 4\r\n\r\nabcd", "POST / HTTP/1.1\r\n" +
			at + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil + other + "\r\n"},
		"a body": {"POST / HTTP/1.1\r\n" + at + "Content-Length: 2\r\n\r\nab" + evil + at + "\r\n",
			"POST / HTTP/1.1\r\n" + at + "Content-Length: 2\r\n\r\nab" + evil + other + "\r\n"},
		"a bare CR":       {evil + at + "X: y\r\n\r\n", evil + at + "X: y\r" + other + "\r\n"},
		"a bare LF":       {evil + at + "X: y\r\n\r\n", evil + at + "X: y\n" + other + "\r\n"},
		"a folded line":   {evil + at + "X: y\r\n\r\n", evil + at + "X: y\r\n " + other + "\r\n"},
		"HTTP/2 as known": {evil + at + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		"CONNECT": {evil + at + "\r\n", fmt.Sprintf("CONNECT other.test:%d HTTP/1.1\r\n", port) + other +
			"\r\n" + evil + other + "\r\n"},
		"a NUL": {evil + at + "\r\n", evil + "Host: web.test\x00.other.test\r\n\r\n"},
		"the dot": {evil + fmt.Sprintf("Host: WEB.tEst.:%d\r\n", port) + "\r\n", evil +
			fmt.Sprintf("Host: web.test.other.test:%d\r\n", port) + "\r\n"},
	} {
		t.Run(what, func(t *testing.T) {
			send := func(bytes string, port uint16) string {
				return fmt.Sprintf("printf '%s' | python3 /tmp/send.py web.test %d",
					strings.NewReplacer("\r", `\r`, "\n", `\n`, "\x00", `\000`).Replace(bytes), port)
			}
			before := seen.Load()
			w.fetches(t, sb, send(tt.allowed, port), "seen /evil")
			if seen.Load() != before+1 {
				t.Error("the server did not see what is allowed")
			}
			w.denied(t, sb, send(tt.refused, port), "", byName("web.test", "allow"))
			if seen.Load() != before+1 {
				t.Error("the server saw what is refused")
			}
		})
	}
	for _, piece := range []int{1, 7, 10000} {
		greet := func(sni string) string {
			return fmt.Sprintf("python3 /tmp/greet.py web.test %d '%s' %d", secure, sni, piece)
		}
		w.fetches(t, sb, greet("web.test"), "hands shaken")
		for _, sni := range []string{"other.test", "xweb.test", "a.web.test", ""} {
			w.denied(t, sb, greet(sni), "unrecognized name", byName("web.test", "allow"))
		}
	}
	// On 443 nothing but TLS; the server is not even asked.
	w.denied(t, sb, fmt.Sprintf("printf 'GET /evil HTTP/1.1\\r\\nHost: web.test:443\\r\\n\\r\\n' | python3 /tmp/send.py web.test %d", 443), "", byName("web.test", "allow"))
	w.OK(t, "rm", "-f", sb)
}

// TestNetworkWildcard: what is below a wildcard can be looked up without anybody outside
// hearing of it, and not without end.
func TestNetworkWildcard(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"a.wild.test"})
	port := webServer(t, "hello")
	sb := w.allowing(t, fmt.Sprintf("*.wild.test:%d", port))
	res := w.in(t, sb, `python3 -c '
import socket
found = 0
for i in range(400):
    try:
        socket.gethostbyname("%060d.wild.test" % i)
        found += 1
    except socket.gaierror: pass
print(found)
'`)
	var found int
	if _, err := fmt.Sscan(res.Stdout, &found); err != nil || found < 50 || found > 250 {
		t.Errorf("%q of 400 secrets of 60 bytes were names: %v", res.Stdout, err)
	}
	if !slices.ContainsFunc(res.Denials, func(d api.Denial) bool { return d.Rule == "lookup budget" && d.Why != "" }) {
		t.Errorf("denials %+v", res.Denials)
	}
	if asked := w.questions(); len(asked) != 0 {
		t.Errorf("names that left the sandbox: %q", asked)
	}
	first := strings.Repeat("0", 60) + ".wild.test" // which it has
	w.set(first, localhost)
	w.fetches(t, sb, fmt.Sprintf("python3 -c 'import urllib.request as u; print(u.urlopen(\"http://%s:%d\").read().decode())'", first, port), "hello")
	if asked := w.questions(); len(asked) != 1 {
		t.Errorf("names that left the sandbox: %q", asked)
	}
	w.OK(t, "rm", "-f", sb)
}
