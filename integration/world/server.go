package world

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Unlikely is a free port of an address where no other test listens: what was closed there stays closed.
const Unlikely = "127.9.8.7:"

// PythonServer listens on ADDRESS PORT: /big, /hello, and an upgraded connection that echoes.
const PythonServer = `
import base64, hashlib, socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
def frames(c, f):
    while len(h := f.read(2)) == 2:
        n = h[1] & 127
        more = f.read({126: 2, 127: 8}.get(n, 0))
        n = int.from_bytes(more, 'big') if more else n
        mask, data = f.read(4), f.read(n)
        data = (int.from_bytes(data, 'big') ^ int.from_bytes((mask * (n // 4 + 1))[:n], 'big')).to_bytes(n, 'big')
        op = {9: 10}.get(h[0] & 15, h[0] & 15)
        c.sendall(bytes([h[0] & 128 | op, h[1] & 127]) + more + data)
        if op == 8: break
def serve(c):
    f = c.makefile('rb')
    head = b''
    while True:
        line = f.readline()
        if not line or line == b'\r\n': break
        head += line
    if b'Upgrade: websocket' in head:
        key = head.split(b'Sec-WebSocket-Key: ')[1].split(b'\r\n')[0]
        accept = base64.b64encode(hashlib.sha1(key + b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest())
        c.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + b'\r\n\r\n')
        frames(c, f)
    elif b'Upgrade: echo' in head:
        c.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n')
        while (b := f.read1(65536)): c.sendall(b)
    elif b'/big' in head:
        c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % (128 << 20))
        for i in range(128): c.sendall(bytes([i]) * (1 << 20))
    else:
        body = b'hello from ' + sys.argv[1].encode()
        c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
    c.shutdown(socket.SHUT_WR); c.close()
print('ready', flush=True)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

// ServeInside starts a server in a sandbox; it runs until the sandbox is removed.
func (w *World) ServeInside(t testing.TB, sandbox, host, port string) {
	t.Helper()
	w.StartServer(t, sandbox, "/usr/bin/python3", "-u", "-c", PythonServer, host, port)
}

// StartServer runs a program in a sandbox until the test ends, and returns when it has said "ready".
func (w *World) StartServer(t testing.TB, sandbox string, argv ...string) {
	t.Helper()
	c := w.Launch(t, append([]string{"exec", sandbox, "--"}, argv...)...)
	c.Await(t, "ready")
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// portClient talks to a port at an address or at a path.
func portClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn,
		error) {
		if path, ok := strings.CutSuffix(addr, ".socket:80"); ok {
			return new(net.Dialer).DialContext(ctx, "unix", strings.ReplaceAll(path, "_", "/"))
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Get makes a request with these headers, names and values in turn, and returns status and body.
func Get(t testing.TB, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	r, err := portClient(t).Do(req)
	if err != nil {
		Fatal(t, err)
	}
	defer r.Body.Close()
	if location := r.Header.Get("Location"); location != "" {
		return r.StatusCode, location + " " + r.Header.Get("Set-Cookie")
	}
	if strings.HasSuffix(url, "/big") {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			Fatal(t, err)
		}
		return r.StatusCode, fmt.Sprintf("%d %x", n, h.Sum(nil))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		Fatal(t, err)
	}
	return r.StatusCode, string(body)
}
