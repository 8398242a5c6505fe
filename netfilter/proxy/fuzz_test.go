package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// oneWay is a connection on which only b comes.
type oneWay struct {
	net.Conn
	b *bytes.Reader
}

func (c oneWay) Read(b []byte) (int, error)       { return c.b.Read(b) }
func (c oneWay) Write(b []byte) (int, error)      { return len(b), nil }
func (c oneWay) Close() error                     { return nil }
func (c oneWay) SetDeadline(time.Time) error      { return nil }
func (c oneWay) SetWriteDeadline(time.Time) error { return nil }

// FuzzHello: what crypto/tls takes for a ClientHello has the server name that we read,
// or is refused; how many bytes came at a time makes no difference.
func FuzzHello(f *testing.F) {
	for _, c := range []*tls.Config{
		{ServerName: "a.test"},
		{InsecureSkipVerify: true},
		{ServerName: "a.test", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "secret.test", EncryptedClientHelloConfigList: echConfigs(f, "a.test")},
	} {
		b := helloBytes(f, c)
		f.Add(b)
		f.Add([]byte(inRecords(string(b[5:]))))
	}
	errSeen := errors.New("seen")
	f.Fuzz(func(t *testing.T, stream []byte) {
		var ours clientHello
		var err error
		cost.Input(t, stream, func(stream []byte) { ours, err = parseHello(stream) })
		if errors.Is(err, errMore) {
			return
		}
		for cut := range min(len(stream), 64) {
			early, earlyErr := parseHello(stream[:len(stream)-cut])
			if errors.Is(earlyErr, errMore) {
				break
			}
			if early != ours || (earlyErr == nil) != (err == nil) {
				t.Fatalf("%+v, %v; without the last %d bytes %+v, %v", ours, err, cut, early, earlyErr)
			}
		}
		var slow helloReader
		// First byte by byte, then in larger pieces: what is read of n bytes n times was most of the work.
		limit := min(len(stream), 4096)
		for n := min(1, limit); ; n = min(n+1+n/64, limit) {
			part := bytes.Clone(stream[:n])
			got, slowErr := slow.read(part)
			clear(part) // as the window's buffer, which another flow may get
			if !errors.Is(slowErr, errMore) {
				if got != ours || (slowErr == nil) != (err == nil) {
					t.Fatalf("%+v, %v; in pieces %+v, %v", ours, err, got, slowErr)
				}
				break
			}
			if n == limit {
				break
			}
		}
		if err != nil {
			return
		}
		var theirs *tls.ClientHelloInfo
		_ = tls.Server(oneWay{b: bytes.NewReader(stream)}, &tls.Config{
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { theirs = h; return nil, errSeen },
		}).Handshake()
		if theirs != nil && theirs.ServerName != ours.serverName {
			t.Fatalf("crypto/tls reads the server name %q, we %q", theirs.ServerName, ours.serverName)
		}
	})
}

// FuzzHTTP: whatever a client sends, each request that net/http reads in what reaches the
// server is for the host that was allowed.
//
// Cost: not measured, because the proxy parses in goroutines of its own.
//
// Rate: 300/s, because each input is two connections and a name that is looked up.
func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\nGET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test:80\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.0\r\nHost: A.TEST.\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, x\r\nUpgrade: h2c\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : a.test\r\nHost: b.test\r\n x\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	received := make(chan []byte, 1)
	server := serve(f, fmt.Sprintf("127.%d.%d.1:80", 100+os.Getpid()>>8%100, os.Getpid()%256), func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		received <- b
	})
	r := start(f, allow("a.test"), func(c *Config) { c.Limits.Denials = 1 })
	r.hosts.set("a.test", []string{server.Addr().String()})
	at := r.address("a.test", 80)
	f.Fuzz(func(t *testing.T, sent []byte) {
		if bytes.Contains(bytes.ToLower(sent), []byte("websocket")) {
			return // the server would have to answer
		}
		before := r.hosts.lookups()
		c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		// at its end: waitFor looks once a millisecond, which is a thousand inputs a second at most
		for r.Connections() > 0 {
			runtime.Gosched()
		}
		if r.hosts.lookups() == before {
			return // nothing passed: no server was looked up
		}
		got := bufio.NewReader(bytes.NewReader(<-received))
		for {
			q, err := http.ReadRequest(got)
			if err != nil {
				return
			}
			if host, _, _ := splitHost(q.Host); strings.ToLower(strings.TrimSuffix(host, ".")) != "a.test" {
				t.Fatalf("a request for %q passed", q.Host)
			}
			if _, err := io.Copy(io.Discard, q.Body); err != nil {
				return
			}
		}
	})
}
