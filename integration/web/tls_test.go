package web_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// certificate makes one of its own for a name, in files.
func certificate(t testing.TB, name, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

// TestTLS: certificates that are made are believed by who is told to, for the server's names; HTTP/2, streams and
// uploads work; HTTP is refused.
func TestTLS(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w, "--tls")
	resp := s.open(t, "GET", "/sandboxes", nil)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s", resp.Proto, resp.Status)
	}
	at := "/sandboxes/" + s.sandbox(t, object{})
	big := strings.Repeat("0123456789abcdef", 1<<16)
	s.ask(t, "PUT", at+"/files?path=/root/big", strings.NewReader(big)).want(http.StatusOK)
	if a := s.ask(t, "GET", at+"/files?path=/root/big", nil); string(a.body) != big {
		t.Errorf("%d bytes of %d", len(a.body), len(big))
	}
	s.ask(t, "PUT", at+"/files?path=/root/huge", io.MultiReader(strings.NewReader(strings.Repeat(big, 101)))).
		fails(http.StatusRequestEntityTooLarge, "too_large")
	events := s.events(t, "POST", at+"/processes", object{"cmd": "echo out"})
	events.want("stdout")
	events.want("end")
	s.ask(t, "GET", "/sandboxes", nil, "Authorization", "").fails(http.StatusUnauthorized, "unauthenticated")
	s.ask(t, "GET", "/sandboxes", nil, "Origin", s.url).want(http.StatusOK)
	s.ask(t, "GET", "/sandboxes", nil, "Origin", strings.Replace(s.url, "https", "http", 1)).
		fails(http.StatusForbidden, "permission_denied")
	plain, err := http.Get(strings.Replace(s.url, "https", "http", 1) + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("HTTP: %s", plain.Status)
	}
	other := &http.Client{Transport: &http.Transport{}}
	if resp, err := other.Get(s.url + "/health"); err == nil {
		_ = resp.Body.Close()
		t.Error("who was told nothing believes it")
	}
	conf := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	for name, good := range map[string]bool{"localhost": true, "8000-sb_x.localhost": true, "example.com": false} {
		conf.ServerName = name
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), conf)
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTLSFiles: a certificate and key of the user's; others that take their place are used for the next connection; a
// key that others can read is refused, and so is a pair that does not fit, which changes nothing.
func TestTLSFiles(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	cert, key := w.Path("cert.pem"), w.Path("key.pem")
	certificate(t, "first.example", cert, key)
	s := serve(t, w, "--host", "first.example", "--tls-cert", cert, "--tls-key", key)
	name := func() string {
		t.Helper()
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := name(); got != "first.example" {
		t.Errorf("%q", got)
	}
	certificate(t, "second.example", cert, key)
	if got := name(); got != "second.example" {
		t.Errorf("%q after another took its place", got)
	}
	certificate(t, "third.example", cert, w.Path("other.pem")) // without its key
	if got := name(); got != "second.example" {
		t.Errorf("%q after one without its key", got)
	}
	if err := os.Rename(w.Path("other.pem"), key); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "third.example" {
		t.Errorf("%q", got)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "web", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key).Want(t, 1).
		Says(t, "can be read by others")
	w.Run(t, "web", "--listen", "127.0.0.1:0", "--tls-cert", cert).Want(t, 125).Says(t, "--tls-key")
	w.Run(t, "web", "--listen", w.Path("s"), "--tls").Want(t, 125).Says(t, "Unix socket")
}

// TestResets: a client that resets its streams as fast as it opens them has no more of them under way than any other,
// and others are served meanwhile.
func TestResets(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w, "--tls")
	id := s.sandbox(t, object{})
	conf := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- flood(c, strings.TrimPrefix(s.url, "https://"), "/sandboxes/"+id, stop) }()
	slowest := time.Duration(0)
	for range 20 {
		began := time.Now()
		s.ask(t, "GET", "/sandboxes/"+id, nil).want(http.StatusOK)
		slowest = max(slowest, time.Since(began))
	}
	close(stop)
	t.Logf("%d streams were reset meanwhile; the slowest of 20 requests took %s", <-done, slowest)
}

// flood opens and resets streams until it is cut off, or told to stop.
func flood(c net.Conn, host, path string, stop <-chan struct{}) (sent int) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return 0
	}
	f := http2.NewFramer(c, nil)
	if f.WriteSettings() != nil {
		return 0
	}
	head := headers(host, path)
	for ; ; sent++ {
		select {
		case <-stop:
			return sent
		default:
		}
		id := uint32(2*sent + 1)
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndStream: true,
			EndHeaders: true})
		if err != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return sent
		}
	}
}

// headers are those of a request.
func headers(host, path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path},
		{"authorization", "Bearer " + token}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}
