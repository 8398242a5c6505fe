package proxy

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tlsServer is one address with several names, as content networks have.
func tlsServer(t testing.TB, at string, hosts ...string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	config := &tls.Config{}
	for _, h := range hosts {
		config.Certificates = append(config.Certificates, certificate(t, pool, h))
	}
	serve(t, at, func(c *net.TCPConn) {
		s := tls.Server(c, config)
		_ = s.SetDeadline(time.Now().Add(patience))
		if s.Handshake() != nil {
			return
		}
		_, _ = io.WriteString(s, s.ConnectionState().ServerName)
		_ = s.CloseWrite()
		_, _ = io.Copy(io.Discard, s)
	})
	return pool
}

// chopped sends what is written in pieces of n bytes, each in a packet of its own.
type chopped struct {
	net.Conn
	n int
}

func (c chopped) Write(b []byte) (int, error) {
	for at := 0; at < len(b); at += c.n {
		if _, err := c.Conn.Write(b[at:min(at+c.n, len(b))]); err != nil {
			return at, err
		}
	}
	return len(b), nil
}

// records sends each handshake record as records of n bytes.
type records struct {
	net.Conn
	n int
}

func (c records) Write(b []byte) (int, error) {
	if b[0] != recordHandshake {
		return c.Conn.Write(b)
	}
	var out []byte
	for body := b[5 : 5+int(b[3])<<8+int(b[4])]; len(body) > 0; {
		n := min(c.n, len(body))
		out = append(append(out, b[0], b[1], b[2], byte(n>>8), byte(n)), body[:n]...)
		body = body[n:]
	}
	out = append(out, b[5+int(b[3])<<8+int(b[4]):]...)
	_, err := c.Conn.Write(out)
	return len(b), err
}

func handshake(c net.Conn, config *tls.Config) (string, error) {
	s := tls.Client(c, config)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.HandshakeContext(ctx); err != nil {
		return "", err
	}
	got, err := io.ReadAll(s)
	return string(got), err
}

// TestTLS: the name that belongs to the address passes, in whatever pieces it comes; no
// other one does, although the same server has it.
func TestTLS(t *testing.T) {
	pool := tlsServer(t, "127.0.0.1:443", "a.test", "b.test", "c.wild.test")
	r := start(t, allow("a.test", "c.test", "*.wild.test"))
	for _, name := range []string{"a.test", "c.test", "c.wild.test"} {
		r.hosts.set(name, []string{"127.0.0.1"})
	}
	config := func(name string) *tls.Config { return &tls.Config{RootCAs: pool, ServerName: name} }
	for _, name := range []string{"a.test", "c.wild.test"} {
		for what, conn := range map[string]net.Conn{
			"whole":            r.connect(name, 443),
			"7-byte segments":  chopped{r.connect(name, 443), 7},
			"1-byte segments":  chopped{r.connect(name, 443), 1},
			"records":          records{r.connect(name, 443), 50},
			"1-byte records":   records{r.connect(name, 443), 1},
			"records, chopped": records{chopped{r.connect(name, 443), 13}, 11},
		} {
			if got, err := handshake(conn, config(name)); err != nil || got != name {
				t.Errorf("%s, %s: %q, %v", name, what, got, err)
			}
		}
	}
	if got, err := handshake(r.connect("a.test", 443), &tls.Config{RootCAs: pool, ServerName: "a.test",
		MaxVersion: tls.VersionTLS12}); err != nil || got != "a.test" {
		t.Errorf("TLS 1.2: %q, %v", got, err)
	}
	// Larger than a record, as with the keys and tickets of several kinds.
	large := config("a.test")
	for i := range 120 {
		large.NextProtos = append(large.NextProtos, strings.Repeat("x", 240)+strconv.Itoa(i))
	}
	if got, err := handshake(r.connect("a.test", 443), large); err != nil || got != "a.test" {
		t.Errorf("a ClientHello of 30 kB: %q, %v", got, err)
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}

	for what, c := range map[string]struct {
		config *tls.Config
		why    string
	}{
		"another name":         {config("b.test"), "asks for b.test at the address of a.test"},
		"another allowed name": {config("c.test"), "asks for c.test at the address of a.test"},
		"a suffix":             {config("xa.test"), "asks for xa.test"},
		"below":                {config("x.a.test"), "asks for x.a.test"},
		"none":                 {&tls.Config{InsecureSkipVerify: true}, "no server name"},
		"an address":           {&tls.Config{InsecureSkipVerify: true, ServerName: "127.0.0.1"}, "no server name"},
	} {
		n := len(r.denials())
		_, err := handshake(r.connect("a.test", 443), c.config)
		if err == nil || !strings.Contains(err.Error(), "tls: unrecognized name") {
			t.Errorf("%s: %v", what, err)
		}
		d := r.denial(n)
		if !strings.Contains(d.Why, c.why) || d.Errno != "TLS alert 112 (unrecognized_name)" || d.Name != "a.test" {
			t.Errorf("%s: %+v", what, d)
		}
	}

	for what, sent := range map[string]string{
		"SSH":             "SSH-2.0-x\r\n",
		"HTTP":            "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"SSL 2":           "\x80\x2e\x01\x00\x02",
		"an alert":        "\x15\x03\x03\x00\x02\x02\x70",
		"an empty record": "\x16\x03\x01\x00\x00",
		"a huge record":   "\x16\x03\x01\xff\xff",
		"a huge hello":    "\x16\x03\x01\x00\x04\x01\xff\xff\xff",
		"a ServerHello":   "\x16\x03\x01\x00\x04\x02\x00\x00\x00",
		"cut off":         "\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",
	} {
		n := len(r.denials())
		if got := talk(t, r.connect("a.test", 443), sent); got != "" && !strings.Contains(got, "reset") {
			t.Errorf("%s: %q", what, got)
		}
		if d := r.denial(n); d.Name != "a.test" || d.Why == "" {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

// TestECH: a client with an Encrypted ClientHello asks for a name that nobody sees, and is
// refused even when the name that is seen is the right one.
func TestECH(t *testing.T) {
	pool := tlsServer(t, "127.0.0.1:443", "a.test")
	r := start(t, allow("a.test"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	config := &tls.Config{RootCAs: pool, ServerName: "secret.test", EncryptedClientHelloConfigList: echConfigs(t,
		"a.test")}
	h := hello(t, config)
	if !h.ech || h.serverName != "a.test" {
		t.Fatalf("%+v", h)
	}
	if _, err := handshake(r.connect("a.test", 443), config); err == nil ||
		!strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("with ECH: %v", err)
	}
	if d := r.denial(0); !strings.Contains(d.Why, "Encrypted ClientHello") ||
		d.HowToAllow != "--allow tcp://a.test:443" {
		t.Errorf("%+v", d)
	}
	if got, err := handshake(r.connect("a.test", 443), &tls.Config{RootCAs: pool, ServerName: "a.test"}); err != nil ||
		got != "a.test" {
		t.Errorf("without: %q, %v", got, err)
	}
}

// echConfigs is what a domain publishes for ECH (RFC 9849, 4), with public as the name
// that everybody sees.
func echConfigs(t testing.TB, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	vector := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	content := []byte{7, 0, 0x20} // id, DHKEM(X25519, HKDF-SHA256)
	content = append(content, vector(key.PublicKey().Bytes())...)
	content = append(content, vector([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	content = append(content, 32, byte(len(public)))         // longest name
	content = append(content, public...)
	content = append(content, 0, 0) // no extensions
	return vector(append([]byte{0xfe, 0x0d}, vector(content)...))
}

// hello is what is read of the ClientHello that config sends.
func hello(t testing.TB, config *tls.Config) clientHello {
	t.Helper()
	h, err := parseHello(helloBytes(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func helloBytes(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, config).Handshake()
	}()
	defer func() { client.Close(); server.Close(); <-done }()
	b := make([]byte, 1<<15)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// parseHello reads the ClientHello that a TLS stream begins with.
func parseHello(stream []byte) (clientHello, error) {
	return new(helloReader).read(stream)
}
