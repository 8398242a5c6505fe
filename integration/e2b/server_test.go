package e2b_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
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

// server is a running `hutch web --e2b`.
type server struct {
	w        *world.World
	url, e2b string // where both shapes are
	cmd      *exec.Cmd
	client   http.RoundTripper
}

// serve starts a server. It ends with the test.
func serve(t testing.TB, w *world.World, flags ...string) *server {
	t.Helper()
	w.OK(t, "rpc", "system.info") // the daemon, which would keep stderr open
	file := w.Path("token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(flags, "--tokens") {
		flags = append(flags, "--token-file", file)
	}
	s := &server{w: w, client: http.DefaultTransport, cmd: w.Command(append([]string{"web", "--listen", "127.0.0.1:0",
		"--e2b=127.0.0.1:0"}, flags...)...)}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	said := bufio.NewReader(stderr)
	s.url = address(t, said, "listening on ")
	if slices.Contains(flags, "--tls") {
		file, _, _ := strings.Cut(address(t, said, "signed by that in "), ",")
		s.client = trusting(t, file)
	}
	s.e2b = address(t, said, "E2B's shape on ")
	go func() {
		rest, _ := io.ReadAll(said) // it must not wait for a reader
		if len(rest) > 0 {
			t.Logf("hutch web: %s", rest)
		}
	}()
	return s
}

// trusting believes the certificates of a file, and knows that all names are this machine's.
func trusting(t testing.TB, file string) *http.Transport {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
		}}
}

func address(t testing.TB, said *bufio.Reader, before string) string {
	t.Helper()
	line, err := said.ReadString('\n')
	_, at, ok := strings.Cut(strings.TrimSpace(line), before)
	if !ok {
		t.Fatalf("%q, %v", line, err)
	}
	return at
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
}

// env is what a program of E2B's users has for hutch: nothing in it changes.
func (s *server) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.w.Path("home"), "LANG=C.UTF-8",
		"E2B_API_URL=" + s.e2b, "E2B_SANDBOX_URL=" + s.e2b, "E2B_API_KEY=e2b_" + token}, more...)
}
