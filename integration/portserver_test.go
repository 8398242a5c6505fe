package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// bigBody is what the servers of these tests send on /big.
const bigBody = 48 << 20

// unlikely is a free port of an address where no other test listens: what was closed there stays closed.
const unlikely = "127.9.8.7:"

// pythonServer listens on ADDRESS PORT: /big, /hello, and an upgraded connection that echoes.
const pythonServer = `
import hashlib, socket, sys, threading
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2]))); s.listen(64)
def serve(c):
    f = c.makefile('rb')
    head = b''
    while True:
        line = f.readline()
        if not line or line == b'\r\n': break
        head += line
    if b'Upgrade: echo' in head:
        c.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n')
        while (b := f.read1(65536)): c.sendall(b)
    elif b'/big' in head:
        c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % (48 << 20))
        for i in range(48): c.sendall(bytes([i]) * (1 << 20))
    else:
        body = b'hello from ' + sys.argv[1].encode()
        c.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
    c.shutdown(socket.SHUT_WR); c.close()
print('ready', flush=True)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

const nodeServer = `
const http = require('http'), [host, port] = process.argv.slice(1);
const s = http.createServer((q, r) => {
  if (q.url.startsWith('/big')) {
    r.setHeader('Content-Length', 48 << 20);
    let i = 0; const more = () => { while (i < 48) if (!r.write(Buffer.alloc(1 << 20, i++))) { r.once('drain', more); return } r.end() }; more();
  } else r.end('hello from ' + host);
});
s.on('upgrade', (q, c, head) => { c.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n'); c.pipe(c) });
s.listen(+port, host, () => console.log('ready'));
`

// serveInside starts a server in a sandbox; it runs until the sandbox is removed.
func (w *world) serveInside(t testing.TB, sandbox, host, port string) {
	t.Helper()
	w.startServer(t, sandbox, "/usr/bin/python3", "-u", "-c", pythonServer, host, port)
}

func (w *world) startServer(t testing.TB, sandbox string, argv ...string) {
	t.Helper()
	c := w.launch(t, append([]string{"exec", sandbox, "--"}, argv...)...)
	c.await(t, "ready")
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// portClient talks to a port at an address or at a path.
func portClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		if path, ok := strings.CutSuffix(addr, ".socket:80"); ok {
			return new(net.Dialer).DialContext(ctx, "unix", strings.ReplaceAll(path, "_", "/"))
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func get(t testing.TB, url string, header ...string) (int, string) {
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
		t.Fatal(err)
	}
	defer r.Body.Close()
	if location := r.Header.Get("Location"); location != "" {
		return r.StatusCode, location + " " + r.Header.Get("Set-Cookie")
	}
	if strings.HasSuffix(url, "/big") {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		if err != nil {
			t.Error(err)
		}
		return r.StatusCode, fmt.Sprintf("%d %x", n, h.Sum(nil))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return r.StatusCode, string(body)
}

func bigSum() string {
	h := sha256.New()
	for i := range bigBody >> 20 {
		h.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	return fmt.Sprintf("%d %x", bigBody, h.Sum(nil))
}

// upgraded sends much both ways at once over a connection that has left HTTP.
func upgraded(t testing.TB, network, address string) {
	t.Helper()
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	for line := ""; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	const size = 4 << 20
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, want %d: %v", len(got), size, err)
	}
}
