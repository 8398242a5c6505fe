package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
)

const token = "0123456789abcdef0123456789abcdef"

// server is a running `hutch web`.
type server struct {
	w      *world.World
	url    string
	client *http.Client
	header http.Header // of each request
	cmd    *exec.Cmd
}

// serve starts a server. It ends with the test.
func serve(t testing.TB, w *world.World, flags ...string) *server {
	t.Helper()
	w.OK(t, "rpc", "system.info") // the daemon, which would keep stderr open
	file := w.Path("token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, w, append([]string{"--listen", "127.0.0.1:0", "--token-file", file}, flags...)...)
	s.header.Set("Authorization", "Bearer "+token)
	return s
}

// start starts `hutch web` and reads where it listens.
func start(t testing.TB, w *world.World, flags ...string) *server {
	t.Helper()
	s := &server{w: w, header: http.Header{}, client: http.DefaultClient, cmd: w.Command(append([]string{"web"}, flags...)...)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	said := bufio.NewReader(stderr)
	line, err := said.ReadString('\n')
	_, at, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("%q, %v", line, err)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		path, _, _ = strings.Cut(path, ",")
		at = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	if len(flags) > 0 && flags[len(flags)-1] == "127.0.0.1:0" { // without --token-file
		line, err := said.ReadString('\n')
		_, file, ok := strings.Cut(strings.TrimSpace(line), "the token is in ")
		if !ok {
			t.Fatalf("%q, %v", line, err)
		}
		made, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.header.Set("Authorization", "Bearer "+strings.TrimSpace(string(made)))
	}
	if slices.Contains(flags, "--tls") {
		line, err := said.ReadString('\n')
		_, file, ok := strings.Cut(strings.TrimSpace(line), "signed by that in ")
		file, _, _ = strings.Cut(file, ",")
		if !ok {
			t.Fatalf("%q, %v", line, err)
		}
		transport.TLSClientConfig = trusting(t, file)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // it must not wait for a reader
	s.url, s.client = at, &http.Client{Transport: transport}
	return s
}

// trusting believes the certificates of a file.
func trusting(t testing.TB, file string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatalf("%s: %s", file, text)
	}
	return &tls.Config{RootCAs: roots}
}

// end has it end as by Ctrl-C.
func (s *server) end(t testing.TB) {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(unix.SIGTERM)
	if err := s.cmd.Wait(); err != nil && !t.Failed() {
		t.Errorf("hutch web: %v", err)
	}
	s.client.CloseIdleConnections()
}

// answer is what came back.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// ask sends a request, whose body is JSON unless it is a reader or nil.
func (s *server) ask(t testing.TB, method, path string, body any, header ...string) *answer {
	t.Helper()
	resp := s.open(t, method, path, body, header...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return &answer{t, method + " " + path, resp.StatusCode, resp.Header, text}
}

// open is ask but for the body of the answer, which the caller closes. header are names and values in turn.
func (s *server) open(t testing.TB, method, path string, body any, header ...string) *http.Response {
	t.Helper()
	var src io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		src = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		src = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, src)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = s.header.Clone()
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// want checks the status, and decodes the body into each of what is given.
func (a *answer) want(status int, into ...any) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d: %s", a.what, a.status, status, a.body)
	}
	for _, v := range into {
		if err := json.Unmarshal(a.body, v); err != nil {
			a.t.Fatalf("%s: %v: %s", a.what, err, a.body)
		}
	}
	return a
}

// fails checks that it is a problem as RFC 9457 has them.
func (a *answer) fails(status int, code string, parts ...string) {
	a.t.Helper()
	var p struct {
		Type, Title, Detail, Code, Hint string
		Status                          int
	}
	a.want(status, &p)
	if p.Code != code || p.Type != "urn:hutch:"+code || p.Status != status || p.Title != http.StatusText(status) ||
		p.Detail == "" || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Errorf("%s: %+v, want the code %s; %v", a.what, p, code, a.header)
	}
	for _, part := range parts {
		if !strings.Contains(p.Detail+" "+p.Hint, part) {
			a.t.Errorf("%s: %q does not say %q", a.what, p.Detail+" "+p.Hint, part)
		}
	}
}

type object = map[string]any

// sandbox makes one.
func (s *server) sandbox(t testing.TB, spec object) string {
	t.Helper()
	var sb struct{ SandboxID string }
	s.ask(t, "POST", "/sandboxes", spec).want(http.StatusCreated, &sb)
	return sb.SandboxID
}

// event is one of a stream.
type event struct {
	id, name string
	data     json.RawMessage
}

// events reads a stream.
type events struct {
	t    testing.TB
	in   *bufio.Reader
	body io.Closer
}

func (s *server) events(t testing.TB, method, path string, body any, header ...string) *events {
	t.Helper()
	resp := s.open(t, method, path, body, append([]string{"Accept", "text/event-stream"}, header...)...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %s: %d: %s", method, path, resp.StatusCode, text)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &events{t, bufio.NewReader(resp.Body), resp.Body}
}

// next is the next event; io.EOF is the end.
func (e *events) next() (ev event, err error) {
	for {
		line, err := e.in.ReadString('\n')
		if err != nil {
			return ev, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			ev.data = json.RawMessage(value)
		case "":
			if ev.name != "" {
				return ev, nil
			}
		}
	}
}

// want reads up to an event of a name.
func (e *events) want(name string) event {
	e.t.Helper()
	for {
		ev, err := e.next()
		if err != nil {
			e.t.Fatalf("no event %s: %v", name, err)
		}
		if ev.name == name {
			return ev
		}
	}
}

func (ev event) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(ev.data, v); err != nil {
		t.Fatalf("%s: %v: %s", ev.name, err, ev.data)
	}
}

func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }
