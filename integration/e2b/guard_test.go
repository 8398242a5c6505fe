package e2b_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// box is a sandbox as its creator hears about it.
type box struct {
	SandboxID, EnvdVersion, EnvdAccessToken, TrafficAccessToken, Domain string
}

// ask sends a request; header are names and values in turn. It returns the status and the body.
func (s *server) ask(t testing.TB, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.e2b+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.RoundTrip(req) // which follows nothing
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// made makes a sandbox.
func (s *server) made(t testing.TB) box {
	t.Helper()
	status, text := s.ask(t, "POST", "/v2/sandboxes", `{"templateID": "base", "timeout": 300, "allow_internet_access": false}`,
		"X-API-KEY", "e2b_"+token)
	var b box
	if err := json.Unmarshal([]byte(text), &b); err != nil || status != http.StatusCreated || b.EnvdAccessToken == "" {
		t.Fatalf("%d: %s", status, text)
	}
	return b
}

// to are the headers of a request to the sandbox.
func (b box) to(more ...string) []string {
	return append([]string{"E2b-Sandbox-Id", b.SandboxID, "X-Access-Token", b.EnvdAccessToken, "Content-Type",
		"application/json"}, more...)
}

const list = "/process.Process/List"

// TestGuard: without the token, for another host or from a page of another origin nobody gets in, and a sandbox's
// token opens no other sandbox. Each refusal has a twin that passes.
func TestGuard(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	key := []string{"X-API-KEY", "e2b_" + token}
	a, b := s.made(t), s.made(t)
	theirs := w.Create(t, "host") // of the command line, which may have folders of the user's
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
	}{
		{"key", "GET", "/v2/sandboxes", key, http.StatusOK},
		{"token", "GET", "/v2/sandboxes", []string{"X-API-KEY", token}, http.StatusOK},
		{"bearer", "GET", "/v2/sandboxes", []string{"Authorization", "Bearer e2b_" + token}, http.StatusOK},
		{"no key", "GET", "/v2/sandboxes", nil, http.StatusUnauthorized},
		{"no form of a key", "GET", "/v2/sandboxes", []string{"X-API-KEY", "e2b_"}, http.StatusUnauthorized},
		{"beginning of the key", "GET", "/v2/sandboxes", []string{"X-API-KEY", "e2b_" + token[:16]},
			http.StatusUnauthorized},
		{"a sandbox's token for the API", "GET", "/v2/sandboxes", []string{"X-API-KEY", a.EnvdAccessToken},
			http.StatusUnauthorized},
		{"name of somebody else", "GET", "/v2/sandboxes", append(key, "Host", "attacker.example"),
			http.StatusForbidden},
		{"other origin", "GET", "/v2/sandboxes", append(key, "Origin", "https://attacker.example"),
			http.StatusForbidden},
		{"its sandbox", "GET", "/sandboxes/" + a.SandboxID, key, http.StatusOK},
		{"another's sandbox", "GET", "/sandboxes/" + theirs, key, http.StatusNotFound},
		{"kill another's sandbox", "DELETE", "/sandboxes/" + theirs, key, http.StatusNotFound},
		{"processes", "POST", list, a.to(), http.StatusOK},
		{"processes, named by the token alone", "POST", list, a.to("E2b-Sandbox-Id", ""), http.StatusOK},
		{"processes without a token", "POST", list, a.to("X-Access-Token", ""), http.StatusUnauthorized},
		{"processes with the key", "POST", list, a.to("X-Access-Token", token), http.StatusUnauthorized},
		{"processes of another", "POST", list, a.to("E2b-Sandbox-Id", b.SandboxID), http.StatusUnauthorized},
		{"processes with the token for traffic", "POST", list, a.to("X-Access-Token", a.TrafficAccessToken),
			http.StatusUnauthorized},
		{"code with the token for traffic", "POST", "/execute", a.to("X-Access-Token", "",
			"E2B-Traffic-Access-Token", a.TrafficAccessToken), http.StatusUnauthorized},
		{"contexts with the token for traffic", "GET", "/contexts", a.to("X-Access-Token", "",
			"E2B-Traffic-Access-Token", a.TrafficAccessToken), http.StatusOK},
		{"binary messages", "POST", list, a.to("Content-Type", "application/proto"),
			http.StatusUnsupportedMediaType},
		{"gRPC", "POST", list, a.to("Content-Type", "application/grpc"), http.StatusUnsupportedMediaType},
		{"file", "GET", "/files?path=/etc/hostname", a.to(), http.StatusOK},
		{"file without a token", "GET", "/files?path=/etc/hostname", []string{"E2b-Sandbox-Id", a.SandboxID},
			http.StatusUnauthorized},
		{"unsigned file", "GET", "/files?path=/etc/hostname&signature=v1_x", nil, http.StatusNotFound},
		{"no path", "GET", "/", key, http.StatusNotFound},
	} {
		body := ""
		if tt.method == "POST" {
			body = "{}"
		}
		if status, text := s.ask(t, tt.method, tt.path, body, tt.header...); status != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.name, status, tt.status, text)
		}
	}
	w.OK(t, "rm", "-f", theirs)
}

// envelope is a message of a stream, whose header says that it has so many bytes.
func envelope(message string, length int) string {
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], uint32(length))
	return string(head) + message
}

// TestBadRequests: what is no request is refused with a reason, and harms nothing.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w, "--max-upload", "1m")
	b := s.made(t)
	stream := b.to("Content-Type", "application/connect+json")
	deep := strings.Repeat("[", 100_000)
	bomb := packed(t, strings.Repeat("x", 2<<20))
	for _, tt := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		says                     string
	}{
		{"deep JSON", "POST", "/v2/sandboxes", deep, []string{"X-API-KEY", token}, http.StatusBadRequest, "depth"},
		{"no JSON", "POST", "/v2/sandboxes", "x", []string{"X-API-KEY", token}, http.StatusBadRequest, "JSON"},
		{"volumes", "POST", "/v2/sandboxes", `{"templateID": "base", "volumeMounts": [{}]}`,
			[]string{"X-API-KEY", token}, http.StatusBadRequest, "volumeMounts"},
		{"the host's loopback", "POST", "/v2/sandboxes",
			`{"templateID": "base", "network": {"allowOut": ["x.example:80", "127.0.0.0/8"]}}`,
			[]string{"X-API-KEY", token}, http.StatusForbidden, "host-ports"},
		{"the host's network", "PUT", "/sandboxes/" + b.SandboxID + "/network", `{"allowOut": ["10.0.0.0/8"]}`,
			[]string{"X-API-KEY", token}, http.StatusForbidden, "host-ports"},
		{"a volume", "POST", "/volumes", "{}", nil, http.StatusNotImplemented, "hutch run --volume"},
		{"a build", "POST", "/v3/templates", "{}", nil, http.StatusNotImplemented, "hutch template create"},
		{"a registry that is not named", "POST", "/v2/sandboxes", `{"templateID": "127.0.0.1:1/x"}`,
			[]string{"X-API-KEY", token}, http.StatusForbidden, "--registry"},
		{"time", "POST", "/v2/sandboxes", `{"templateID": "base", "timeout": -1}`, []string{"X-API-KEY", token},
			http.StatusBadRequest, "timeout"},
		{"page", "GET", "/v2/sandboxes?nextToken=%21", "", []string{"X-API-KEY", token}, http.StatusBadRequest,
			"nextToken"},
		{"deep message", "POST", list, deep, b.to(), http.StatusBadRequest, "invalid_argument"},
		{"signal", "POST", "/process.Process/SendSignal", `{"process": {"pid": 1}, "signal": "SIGNAL_SIGSTOP"}`, b.to(),
			http.StatusBadRequest, "no signal"},
		{"pid", "POST", "/process.Process/SendSignal", `{"process": {"pid": 99999999}, "signal": 9}`, b.to(),
			http.StatusNotFound, "not found"},
		{"long message", "POST", "/process.Process/Start", envelope("{}", 1<<32-1), stream, http.StatusOK,
			"resource_exhausted"},
		{"short message", "POST", "/process.Process/Start", envelope("{}", 100), stream, http.StatusOK,
			"promised 100 bytes"},
		{"message that is no JSON", "POST", "/process.Process/Start", envelope("xx", 2), stream, http.StatusOK,
			"invalid_argument"},
		{"no program", "POST", "/process.Process/Start", envelope("{}", 2), stream, http.StatusOK,
			"invalid_argument"},
		{"input without a process", "POST", "/process.Process/StreamInput", envelope(`{"data":{}}`, 11), stream,
			http.StatusOK, "invalid_argument"},
		{"file that is too large", "POST", "/files?path=x", strings.Repeat("x", 2<<20),
			b.to("Content-Type", "application/octet-stream"), http.StatusRequestEntityTooLarge, "max-upload"},
		{"file that is too large unpacked", "POST", "/files?path=x", bomb,
			b.to("Content-Type", "application/octet-stream", "Content-Encoding", "gzip"),
			http.StatusRequestEntityTooLarge, "max-upload"},
		{"no gzip", "POST", "/files?path=x", "x", b.to("Content-Encoding", "gzip"), http.StatusBadRequest, "form"},
		{"form without its boundary", "POST", "/files?path=x", "x", b.to("Content-Type", "multipart/form-data"),
			http.StatusBadRequest, "form"},
		{"NUL in a path", "GET", "/files?path=a%00b", "", b.to(), http.StatusBadRequest, "NUL"},
		{"language", "POST", "/execute", `{"code": "1", "language": "cobol"}`, b.to(), http.StatusBadRequest, "cobol"},
		{"context", "POST", "/execute", `{"code": "1", "context_id": "../x"}`, b.to(), http.StatusNotFound,
			"not found"},
	} {
		status, text := s.ask(t, tt.method, tt.path, tt.body, tt.header...)
		if status != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %d, want %d with %q: %.300s", tt.name, status, tt.status, tt.says, text)
		}
	}
	if status, text := s.ask(t, "GET", "/files?path=x", "", b.to()...); status != http.StatusNotFound {
		t.Errorf("of what was refused something is there: %d: %.100s", status, text)
	}
	status := 0
	for i := 0; i < 200 && status != http.StatusTooManyRequests; i++ {
		status, _ = s.ask(t, "GET", "/files?path=x&signature=v1_x", "")
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("signatures can be tried: %d", status)
	}
	if status, _ := s.ask(t, "POST", list, "{}", b.to()...); status != http.StatusOK {
		t.Error("the sandbox does not answer any more")
	}
	res := w.Run(t, "web", "--e2b", "--listen", w.Path("socket"))
	if res.Code != 125 || !strings.Contains(res.Stderr, "Unix socket") {
		t.Errorf("%+v", res)
	}
}

func packed(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	if err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.String()
}

// echoServer answers with the path and the headers that it was sent.
const echoServer = `import http.server, sys
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo)
print("ready")
server.serve_forever()
`

// TestPreview: servers in a sandbox are reached under names of their own, by who has the sandbox's token for them; they
// see none of it.
func TestPreview(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	s := serve(t, w)
	b := s.made(t)
	w.StartServer(t, b.SandboxID, "/usr/bin/python3", "-u", "-c", echoServer, "8000")
	host := "8000-" + b.SandboxID + ".localhost:7071"
	for _, tt := range []struct {
		name   string
		path   string
		header []string
		status int
		says   string
	}{
		{"token", "/a?b=c", []string{"E2B-Traffic-Access-Token", b.TrafficAccessToken, "X-API-KEY", token,
			"Authorization", "Bearer own"}, http.StatusOK, "Authorization: Bearer own"},
		{"path", "/a?b=c", []string{"E2B-Traffic-Access-Token", b.TrafficAccessToken}, http.StatusOK, "/a?b=c\n"},
		{"cookie", "/", []string{"Cookie", "own=1; e2b_traffic=" + b.TrafficAccessToken}, http.StatusOK,
			"Cookie: own=1\n"},
		{"query", "/?e2b_traffic_access_token=" + b.TrafficAccessToken, nil, http.StatusSeeOther, ""},
		{"query of who has a header", "/?c=d&e2b_traffic_access_token=" + b.TrafficAccessToken,
			[]string{"E2B-Traffic-Access-Token", b.TrafficAccessToken}, http.StatusOK, "/?c=d\n"},
		{"the server's key", "/", []string{"E2B-Traffic-Access-Token", b.TrafficAccessToken,
			"Authorization", "Bearer e2b_" + token}, http.StatusOK, "Host: " + host + "\n"},
		{"no token", "/", nil, http.StatusUnauthorized, "E2B-Traffic-Access-Token"},
		{"the token for processes", "/", []string{"E2B-Traffic-Access-Token", b.EnvdAccessToken},
			http.StatusUnauthorized, ""},
		{"the key", "/", []string{"X-API-KEY", token}, http.StatusUnauthorized, ""},
		{"a port that nobody listens on", "/", []string{"Host", "8001-" + b.SandboxID + ".localhost",
			"E2B-Traffic-Access-Token", b.TrafficAccessToken}, http.StatusBadGateway, "port is not open"},
		{"no sandbox", "/", []string{"Host", "8000-sb_0.localhost"}, http.StatusUnauthorized, ""},
		{"the API under that name", "/v2/sandboxes", []string{"X-API-KEY", token}, http.StatusUnauthorized, ""},
	} {
		status, text := s.ask(t, "GET", tt.path, "", append([]string{"Host", host}, tt.header...)...)
		if status != tt.status || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %d, want %d: %s", tt.name, status, tt.status, text)
		}
		if strings.Contains(text, token) || status == http.StatusOK && strings.Contains(text, b.TrafficAccessToken) {
			t.Errorf("%s: the sandbox sees a secret: %s", tt.name, text)
		}
	}
	no := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequest("GET", s.e2b+"//evil.example/x?e2b_traffic_access_token="+b.TrafficAccessToken, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	answer, err := no.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if to := answer.Header.Get("Location"); to != "/evil.example/x" {
		t.Errorf("it leads to %q", to)
	}
	for port := 9000; port < 9040; port++ { // the owner has ports left
		s.ask(t, "GET", "/", "", "Host", fmt.Sprintf("%d-%s.localhost", port, b.SandboxID),
			"E2B-Traffic-Access-Token", b.TrafficAccessToken)
	}
	if n := strings.Count(w.OK(t, "rpc", "port.list", `{"sandbox": "`+b.SandboxID+`"}`), `"address"`); n > 16 {
		t.Errorf("%d ports are open", n)
	}
	status, text := s.ask(t, "GET", "/again", "", "Host", host, "E2B-Traffic-Access-Token", b.TrafficAccessToken)
	if status != http.StatusOK {
		t.Errorf("%d: %s", status, text)
	}
}

// TestRefusedFork: a sandbox of a snapshot that is refused its network does not run on.
func TestRefusedFork(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	b := s.made(t)
	key := []string{"X-API-KEY", token}
	status, text := s.ask(t, "POST", "/sandboxes/"+b.SandboxID+"/snapshots", "{}", key...)
	var snapshot struct{ SnapshotID string }
	if err := json.Unmarshal([]byte(text), &snapshot); err != nil || status != http.StatusCreated {
		t.Fatalf("%d, %v: %s", status, err, text)
	}
	body := `{"templateID": "` + snapshot.SnapshotID + `", "network": {"allowOut": ["127.0.0.0/8"]}}`
	if status, text = s.ask(t, "POST", "/v2/sandboxes", body, key...); status != http.StatusForbidden ||
		!strings.Contains(text, "host-ports") {
		t.Errorf("%d: %s", status, text)
	}
	if _, text = s.ask(t, "GET", "/v2/sandboxes", "", key...); strings.Count(text, `"sandboxID"`) != 1 {
		t.Errorf("there are %s", text)
	}
}
