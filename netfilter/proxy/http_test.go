package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// web is an HTTP server that says what it was asked.
func web(t testing.TB, at string) {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		fmt.Fprintf(w, "%s %s %s %s", q.Method, q.Host, q.RequestURI, body)
		for k, v := range q.Trailer {
			fmt.Fprintf(w, " %s=%s", k, v[0])
		}
	})}
	l := listener(t, at)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Close(); <-done })
}

// talk sends raw bytes and returns all that comes back.
func talk(t testing.TB, c *net.TCPConn, sent string) string {
	t.Helper()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		return string(got) + " [" + err.Error() + "]"
	}
	return string(got)
}

// TestHTTPRequests: requests that pass, as the server sees them.
func TestHTTPRequests(t *testing.T) {
	web(t, "127.0.0.1:80")
	r := start(t, allow("a.test"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	for what, c := range map[string]struct{ sent, want string }{
		"plain":          {"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test /x "},
		"mixed case":     {"GET / HTTP/1.1\r\nhOsT: A.tEST\r\n\r\n", "GET A.tEST / "},
		"trailing dot":   {"GET / HTTP/1.1\r\nHost: a.test.\r\n\r\n", "GET a.test. / "},
		"port":           {"GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n", "GET a.test:80 / "},
		"absolute":       {"GET http://a.test/y?q#f HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test /y?q#f "},
		"absolute, bare": {"GET http://a.test?q HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test /?q "},
		"an empty line":  {"\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test / "},
		"length": {"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
			"POST a.test / hello"},
		"chunked":        {"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", "POST a.test / hello"},
		"trailers":       {"POST / HTTP/1.1\r\nHost: a.test\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\nX-T: v\r\n\r\n", "POST a.test / hel X-T=v"},
		"HTTP/1.0":       {"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", "GET a.test / "},
		"OPTIONS *":      {"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", "200 OK"},
		"HEAD":           {"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n", "200 OK"},
		"upgrade to h2c": {"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\r\n", "GET a.test / "},
		"upgrade to TLS": {"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n",
			"GET a.test / "},
		"expect": {"POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
			"POST a.test / hi"},
		"pipelined": {"GET /1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n",
			"GET a.test /2 "},
		"a body, pipelined": {"POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET a.test /2 "},
		"other white space": {"GET / HTTP/1.1\r\nHost:\t a.test \t\r\n\r\n", "GET a.test / "},
	} {
		if got := talk(t, r.connect("a.test", 80), c.sent); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", what, got)
		}
		slow := r.connect("a.test", 80)
		if _, err := io.WriteString(chopped{slow, 1}, c.sent); err != nil {
			t.Errorf("%s, byte by byte: %v", what, err)
		}
		if got := talk(t, slow, ""); !strings.Contains(got, c.want) {
			t.Errorf("%s, byte by byte: %q", what, got)
		}
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
}

// TestHTTPRefused: requests that do not pass, each as the first and as the second one of
// a connection.
func TestHTTPRefused(t *testing.T) {
	web(t, "127.0.0.1:80")
	r := start(t, allow("a.test"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	const good = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
	for what, sent := range map[string]string{
		"another host":          "GET /evil HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"no host":               "GET /evil HTTP/1.1\r\n\r\n",
		"no host, HTTP/1.0":     "GET /evil HTTP/1.0\r\n\r\n",
		"empty host":            "GET /evil HTTP/1.1\r\nHost:\r\n\r\n",
		"two hosts":             "GET /evil HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
		"the same host twice":   "GET /evil HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
		"two in one":            "GET /evil HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
		"a suffix":              "GET /evil HTTP/1.1\r\nHost: xa.test\r\n\r\n",
		"a prefix":              "GET /evil HTTP/1.1\r\nHost: a.test.evil.test\r\n\r\n",
		"user":                  "GET /evil HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n",
		"another port":          "GET /evil HTTP/1.1\r\nHost: a.test:81\r\n\r\n",
		"no port":               "GET /evil HTTP/1.1\r\nHost: a.test:\r\n\r\n",
		"an address":            "GET /evil HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"space before colon":    "GET /evil HTTP/1.1\r\nHost : a.test\r\n\r\n",
		"another, then space":   "GET /evil HTTP/1.1\r\nHost: a.test\r\nHost : b.test\r\n\r\n",
		"a folded line":         "GET /evil HTTP/1.1\r\nHost: a.test\r\nX: y\r\n Host: b.test\r\n\r\n",
		"a line feed alone":     "GET /evil HTTP/1.1\nHost: a.test\n\n",
		"one line feed alone":   "GET /evil HTTP/1.1\r\nHost: a.test\r\nX: y\nHost: b.test\r\n\r\n",
		"a bare CR":             "GET /evil HTTP/1.1\r\nHost: a.test\r\nX: y\rHost: b.test\r\n\r\n",
		"a NUL":                 "GET /evil HTTP/1.1\r\nHost: a.test\x00.b.test\r\n\r\n",
		"a NUL elsewhere":       "GET /evil HTTP/1.1\r\nHost: a.test\r\nX: \x00\r\n\r\n",
		"absolute, other host":  "GET http://b.test/evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"absolute, same other":  "GET http://b.test/evil HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"absolute, https":       "GET https://a.test/evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"absolute, user":        "GET http://a.test@b.test/evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"absolute, slashes":     "GET http:///b.test/evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"CONNECT":               "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"CONNECT elsewhere":     "CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n",
		"h2c preface":           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/2":                "GET /evil HTTP/2.0\r\nHost: a.test\r\n\r\n",
		"HTTP/1.2":              "GET /evil HTTP/1.2\r\nHost: a.test\r\n\r\n",
		"HTTP/0.9":              "GET /evil\r\n\r\n",
		"two spaces":            "GET  /evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"a tab":                 "GET\t/evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"a relative target":     "GET evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET *":                 "GET * HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"both lengths":          "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\nHost: b.test\r\n\r\n",
		"two lengths":           "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
		"a length with a sign":  "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: +4\r\n\r\nabcd",
		"a length in hex":       "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0x4\r\n\r\nabcd",
		"lengths in one":        "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4, 4\r\n\r\nabcd",
		"a huge length":         "POST /evil HTTP/1.1\r\nHost: a.test\r\nContent-Length: 18446744073709551616\r\n\r\nabcd",
		"another encoding":      "POST /evil HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":         "POST /evil HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked in 1.0":        "POST /evil HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Connection: Host":      "GET /evil HTTP/1.1\r\nHost: a.test\r\nConnection: close, host\r\n\r\n",
		"TLS":                   "\x16\x03\x01\x00\x05hello\r\n\r\n",
		"no HTTP":               "SSH-2.0-client\r\n\r\n",
		"a very long header":    "GET /evil HTTP/1.1\r\nHost: a.test\r\nX: " + strings.Repeat("x", 70000) + "\r\n\r\n",
		"a method with a colon": "GE:T /evil HTTP/1.1\r\nHost: a.test\r\n\r\n",
	} {
		n := len(r.denials())
		got := talk(t, r.connect("a.test", 80), sent)
		if strings.Contains(got, "200 OK") {
			t.Errorf("%s: %q", what, got)
		}
		if d := r.denial(n); d.Name != "a.test" || d.Why == "" || d.Rule != "allow a.test" {
			t.Errorf("%s: %+v", what, d)
		}
		if len(r.denials()) != n+1 {
			t.Errorf("%s: %d denials", what, len(r.denials())-n)
		}

		// Behind a good one: that is answered or not, but this one never.
		got = talk(t, r.connect("a.test", 80), good+sent)
		if strings.Contains(got, "evil") || strings.Contains(got, "hutch") {
			t.Errorf("%s, pipelined: %q", what, got)
		}
		if d := r.denial(n + 1); d.Errno != "ECONNRESET" {
			t.Errorf("%s, pipelined: %+v", what, d)
		}
		if len(r.denials()) != n+2 {
			t.Errorf("%s, pipelined: %d denials", what, len(r.denials())-n-1)
		}
	}
}

// TestHTTPClient: a real client, that keeps its connection, waits for 100 Continue, sends
// bodies and reads answers in pieces.
func TestHTTPClient(t *testing.T) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusTeapot) // without 100 Continue
			return
		}
		body, _ := io.ReadAll(q.Body) // first: answers to half a request end the connection
		_, _ = w.Write(body)
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, " done")
	})}
	l := listener(t, "127.0.0.1:80")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Close(); <-done })
	r := start(t, allow("a.test"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	at := r.address("a.test", 80)
	dials := 0
	transport := &http.Transport{
		ExpectContinueTimeout: patience,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials++
			return new(net.Dialer).DialContext(ctx, network, at.String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: patience}
	for _, size := range []int{0, 10, 100_000, 1_000_000} {
		for _, chunked := range []bool{false, true} {
			body := io.Reader(strings.NewReader(strings.Repeat("x", size)))
			if chunked {
				body = io.MultiReader(body) // of a length that the client does not know
			}
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Expect", "100-continue")
			reply, err := client.Do(q)
			if err != nil {
				t.Fatalf("%d bytes, chunked %v: %v", size, chunked, err)
			}
			got, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			if err != nil || len(got) != size+len(" done") {
				t.Errorf("%d bytes, chunked %v: %d came back, %v", size, chunked, len(got), err)
			}
		}
	}
	if dials != 1 {
		t.Errorf("%d connections: the client could not keep one", dials)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.test/refuse", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Expect", "100-continue")
	if reply, err := client.Do(q); err != nil || reply.StatusCode != http.StatusTeapot {
		t.Errorf("an early answer: %v, %v", reply, err)
	} else {
		reply.Body.Close()
	}
	if d := r.denials(); len(d) != 0 {
		t.Errorf("denials: %+v", d)
	}
}

// TestHTTPExplains: a program that is refused can read why.
func TestHTTPExplains(t *testing.T) {
	r := start(t, allow("a.test"))
	c := r.connect("a.test", 80)
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: b.test\r\nContent-Length: 100000\r\n\r\n"+
		strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	reply, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != 403 || !strings.Contains(string(body), "b.test") ||
		!strings.Contains(string(body), "--allow b.test") {
		t.Errorf("%s, %q, %v", reply.Status, body, err)
	}
	if d := r.denial(0); d.Errno != "HTTP 403" || d.HowToAllow != "--allow b.test" {
		t.Errorf("%+v", d)
	}
	r.hosts.set("a.test", []string{"10.0.0.1"})
	if got := talk(t, r.connect("a.test", 80), "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.Contains(got,
		"403 Forbidden") || !strings.Contains(got, "10.0.0.1 is private") {
		t.Errorf("a private address: %q", got)
	}
	r.hosts.forget("a.test")
	if got := talk(t, r.connect("a.test", 80), "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); !strings.Contains(got,
		"502 Bad Gateway") {
		t.Errorf("a name that does not exist: %q", got)
	}
}
