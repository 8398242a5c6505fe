package e2b_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestHTTPS: what getHost names is reached by https, under the domain that the server was given, and its cookie goes
// over nothing else.
func TestHTTPS(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	s := serve(t, w, "--tls", "--e2b-domain", "boxes.example")
	b := s.made(t)
	if host, _, _ := strings.Cut(b.Domain, ":"); host != "boxes.example" {
		t.Fatalf("%q", b.Domain)
	}
	w.StartServer(t, b.SandboxID, "/usr/bin/python3", "-u", "-c", echoServer, "8000")
	url := "https://8000-" + b.SandboxID + "." + b.Domain // as getHost has it
	get := func(url string, header ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
		resp, err := s.client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	resp, text := get(url+"/a", "E2B-Traffic-Access-Token", b.TrafficAccessToken)
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || !strings.Contains(text, "/a") {
		t.Errorf("%s %s: %s", resp.Proto, resp.Status, text)
	}
	if resp, _ := get(url + "/"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s", resp.Status)
	}
	resp, _ = get(url + "/?e2b_traffic_access_token=" + b.TrafficAccessToken)
	if all := resp.Cookies(); len(all) != 1 || !all[0].Secure || !all[0].HttpOnly {
		t.Errorf("%v", all)
	}
}

// TestClients: with keys of their own clients see their own sandboxes, and a sandbox's token is worth nothing once its
// client's is taken away.
func TestClients(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	entry := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return `  c` + token[:4] + `: {digest: "sha256:` + hex.EncodeToString(sum[:]) +
			`", sandboxes: 1, timeout: 400}` + "\n"
	}
	second := strings.Repeat("fedc", 8)
	file := w.Path("clients.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte("tokens:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(entry(token) + entry(second))
	s := serve(t, w, "--tokens", file)
	b := s.made(t)
	key, other := []string{"X-API-KEY", "e2b_" + token}, []string{"X-API-KEY", "e2b_" + second}
	for _, tt := range []struct {
		method, path, body string
		key                []string
		status             int
	}{
		{"GET", "/sandboxes/" + b.SandboxID, "", key, http.StatusOK},
		{"GET", "/sandboxes/" + b.SandboxID, "", other, http.StatusNotFound},
		{"POST", "/sandboxes/" + b.SandboxID + "/pause", "{}", other, http.StatusNotFound},
		{"DELETE", "/sandboxes/" + b.SandboxID, "", other, http.StatusNotFound},
		{"POST", "/v2/sandboxes", `{"templateID": "base", "timeout": 300}`, key, http.StatusTooManyRequests},
		{"POST", "/v2/sandboxes", `{"templateID": "base", "timeout": 401}`, other, http.StatusForbidden},
		{"POST", "/sandboxes/" + b.SandboxID + "/timeout", `{"timeout": 500}`, key, http.StatusForbidden},
		{"POST", "/sandboxes/" + b.SandboxID + "/timeout", `{"timeout": 350}`, key, http.StatusNoContent},
		{"POST", list, "{}", b.to(), http.StatusOK},
		{"GET", "/v2/sandboxes", "", []string{"X-API-KEY", "e2b_" + token[1:] + "0"}, http.StatusUnauthorized},
	} {
		if status, text := s.ask(t, tt.method, tt.path, tt.body, tt.key...); status != tt.status {
			t.Errorf("%s %s %s: %d, want %d: %s", tt.method, tt.path, tt.body, status, tt.status, text)
		}
	}
	if _, text := s.ask(t, "GET", "/v2/sandboxes", "", other...); strings.TrimSpace(text) != "[]" {
		t.Errorf("another client sees %s", text)
	}
	write(entry(second))
	if status, text := s.ask(t, "POST", list, "{}", b.to()...); status != http.StatusUnauthorized {
		t.Errorf("the token of a client that is gone: %d: %s", status, text)
	}
}
