package e2b

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/rest"
)

const token = "0123456789abcdef"

// alone is a server whose daemon never answers.
func alone(t testing.TB) *Server {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	one := []*rest.Client{rest.OneClient(token, nil)}
	s, err := New(t.Context(), Config{Log: log, Folder: filepath.Join(t.TempDir(), "x-"), REST: rest.New(rest.Config{Log: log,
		Clients: func() []*rest.Client { return one }, Connect: func(context.Context) (*client.Client, error) { return nil, errors.New("no daemon") }})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestTokens: those of a sandbox are its own, one for each use, and name it.
func TestTokens(t *testing.T) {
	one, other := rest.OneClient(token, nil), rest.OneClient(token[1:], nil)
	all := map[string]bool{}
	for _, id := range []string{"sb_a", "sb_b", "sb_a\x00access"} {
		for _, what := range []string{forAccess, forTraffic} {
			text := tokenOf(one, id, what)
			if all[text] || !strings.HasPrefix(text, id+".") || strings.Contains(text, token) ||
				text != tokenOf(one, id, what) {
				t.Errorf("%q %s: %q", id, what, text)
			}
			all[text] = true
		}
	}
	if tokenOf(one, "sb_a", forAccess) == tokenOf(other, "sb_a", forAccess) {
		t.Error("another server's token is the same")
	}
}

// TestSignature: they are those that the SDKs make, for one path, operation, user and time.
func TestSignature(t *testing.T) {
	const want = "v1_ZS/zJ5pePBMQN1g7gKuJ8GBfuaLtwdZtp0OyonGsWSU"
	g := signature{path: "/tmp/a b", operation: "read", user: "root", expiration: "1700000000"}
	if got := g.by("secret"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, tt := range []struct {
		end  string
		over bool
	}{{"", false}, {"1700000000", false}, {"1699999999", true}, {"x", true}, {"-1", true},
		{"99999999999999999999", true}} {
		g.expiration = tt.end
		if g.expired(time.Unix(1700000000, 0)) != tt.over {
			t.Errorf("%q: want %v", tt.end, tt.over)
		}
	}
}

// TestPolicy: what SDKs ask for is what hutch is asked for, and never more.
func TestPolicy(t *testing.T) {
	no := false
	for _, tt := range []struct {
		name string
		n    network
		want rest.NetworkPolicy
	}{
		{"nothing", network{}, rest.NetworkPolicy{Mode: api.NetOpen}},
		{"no internet", network{AllowInternet: &no, AllowOut: []string{"example.com"}},
			rest.NetworkPolicy{Mode: api.NetAllow}},
		{"denied", network{DenyOut: []string{"0.0.0.0/0"}}, rest.NetworkPolicy{Mode: api.NetAllow}},
		{"denied but for", network{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"*.example.com", "192.0.2.1"}},
			rest.NetworkPolicy{Mode: api.NetAllow, Allow: []string{"*.example.com"},
				AllowCIDRs: []string{"192.0.2.1"}}},
		{"allowed alone", network{AllowOut: []string{"example.com"}},
			rest.NetworkPolicy{Mode: api.NetAllow, Allow: []string{"example.com"}}},
		{"a range denied", network{DenyOut: []string{"192.0.2.0/24"}},
			rest.NetworkPolicy{Mode: api.NetOpen, BlockCIDRs: []string{"192.0.2.0/24"}}},
		{"all allowed", network{DenyOut: []string{"192.0.2.1"}, AllowOut: []string{"0.0.0.0/0"}},
			rest.NetworkPolicy{Mode: api.NetOpen, BlockCIDRs: []string{"192.0.2.1"}}},
	} {
		p, err := tt.n.policy()
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got, _ := json.Marshal(p)
		want, _ := json.Marshal(tt.want)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s, want %s", tt.name, got, want)
		}
	}
	if _, err := (&network{EgressProxy: map[string]any{"address": "x"}}).policy(); err == nil {
		t.Error("a proxy was passed over")
	}
}

// TestResults: a value is one result with how it shows, unless something else was shown.
func TestResults(t *testing.T) {
	html := api.Artifact{Kind: "value", MIMEType: "text/html", Data: "<b>"}
	figure := api.Artifact{Kind: "figure", MIMEType: "image/png", Data: "AA=="}
	for _, tt := range []struct {
		name string
		res  api.CodeResult
		code string
		want string
	}{
		{"value", api.CodeResult{Text: "1"}, "1", `[{"is_main_result":true,"text":"1","type":"result"}]`},
		{"shown value", api.CodeResult{Text: "H", Artifacts: []api.Artifact{html}}, "H()",
			`[{"html":"\u003cb\u003e","is_main_result":true,"text":"H","type":"result"}]`},
		{"displayed", api.CodeResult{Text: "1", Artifacts: []api.Artifact{html}}, "display(H()); 1",
			`[{"html":"\u003cb\u003e","is_main_result":false,"type":"result"},{"is_main_result":true,"text":"1","type":"result"}]`},
		{"figure", api.CodeResult{Text: "[<Line>]", Artifacts: []api.Artifact{figure}}, "plt.plot()",
			`[{"is_main_result":false,"png":"AA==","type":"result"},{"is_main_result":true,"text":"[\u003cLine\u003e]","type":"result"}]`},
		{"file", api.CodeResult{Artifacts: []api.Artifact{{Kind: "file", MIMEType: "image/png", Data: "AA=="}}}, "", `null`},
		{"no JSON", api.CodeResult{Artifacts: []api.Artifact{{Kind: "value", MIMEType: "application/json", Data: "{"}}},
			"", `null`},
	} {
		got, err := json.Marshal(linesOf(&tt.res, tt.code, time.Time{}))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

// FuzzMessages: whatever is sent to a procedure, with the token of a sandbox or without, is refused, and costs in
// proportion to its length.
func FuzzMessages(f *testing.F) {
	s := alone(f)
	var paths []string
	handlers := map[string]http.Handler{}
	for pattern, h := range s.boxRoutes() {
		path := strings.Fields(pattern)[1]
		paths = append(paths, path)
		handlers[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := &call{sb: api.Sandbox{ID: "sb_a", Workdir: "/"}, w: w, ping: time.Second}
			if err := h(w, r, c); err != nil {
				s.boxFail(w, r, "sb_a", err)
			}
		})
	}
	slices.Sort(paths)
	f.Add("/process.Process/Start", true, []byte(`{"process":{"cmd":"/bin/bash","args":["-l","-c","true"]},"stdin":false}`))
	f.Add("/process.Process/StreamInput", true, []byte(`{"start":{"process":{"pid":7}}}`))
	f.Add("/process.Process/SendSignal", false, []byte(`{"process":{"pid":7},"signal":"SIGNAL_SIGKILL"}`))
	f.Add("/filesystem.Filesystem/ListDir", false, []byte(`{"path":"/","depth":4294967295}`))
	f.Add("/execute", false, []byte(`{"code":"1","language":null,"context_id":null,"env_vars":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, path string, streams bool, message []byte) {
		h, ok := handlers[path]
		if !ok {
			h = handlers[paths[len(path)%len(paths)]]
		}
		kind, body := "application/json", message
		if streams {
			kind = "application/connect+json"
			head := make([]byte, 5)
			binary.BigEndian.PutUint32(head[1:], uint32(len(message)))
			body = append(head, message...)
		}
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		cost.Of(t, len(body), func() { h.ServeHTTP(w, r) })
		none := []byte(`"end_of_execution"`) // of code that is empty
		if w.Code < 400 && !bytes.Contains(w.Body.Bytes(), []byte(`"error"`)) && !bytes.Contains(w.Body.Bytes(), none) {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	})
}

// FuzzForm: forms as SDKs and others send them are read or refused.
func FuzzForm(f *testing.F) {
	s := alone(f)
	f.Add("x", []byte("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../a/b\"\r\n\r\nup\r\n--x--\r\n"))
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/files", http.NoBody)
		c := &call{sb: api.Sandbox{ID: "sb_a", Workdir: "/home/user"}}
		cost.Of(t, len(body), func() {
			done, _ := s.parts(httptest.NewRecorder(), r, c, multipart.NewReader(bytes.NewReader(body), boundary), "")
			if len(done) > 0 {
				t.Errorf("without a daemon %v was written", done)
			}
		})
	})
}

// FuzzLines: what a sandbox says of its files is events, or nonsense that ends the watch; it is bounded.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"ready\":true}\n{\"name\":\"a\",\"type\":\"CREATE\"}\n"), 7)
	f.Add([]byte("{\"name\":\"\\ud800\",\"type\":\"WRITE\"}\n\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		cut = max(cut, 1)
		cost.Of(t, len(text)*(len(text)/cut+1), func() {
			var l lines
			for rest := text; len(rest) > 0; {
				piece := rest[:min(cut, len(rest))]
				rest = rest[len(piece):]
				all, err := l.add(piece)
				if len(l.rest) > maxLine+cut {
					t.Fatalf("%d bytes are held", len(l.rest))
				}
				for i := range all {
					ev, ok := all[i].event()
					if out, err := json.Marshal(ev); ok && (err != nil || !strings.HasPrefix(string(ev.Type), "EVENT_TYPE_")) {
						t.Fatalf("%s, %v", out, err)
					}
				}
				if err != nil {
					return
				}
			}
		})
	})
}

// TestUnpacked: a body that unpacks to more than may be uploaded ends with an error.
func TestUnpacked(t *testing.T) {
	b := &bounded{strings.NewReader(strings.Repeat("x", 100)), 99, 99}
	_, err := io.ReadAll(b)
	var large *http.MaxBytesError
	if !errors.As(err, &large) {
		t.Errorf("%v", err)
	}
	if _, err := unpacked(strings.NewReader(""), "br", 1); err == nil {
		t.Error("br was taken")
	}
}

// TestColumns: a table of a sandbox's is turned, and one that would be too large is none.
func TestColumns(t *testing.T) {
	if got := columns(`{"columns": ["a", "b"], "data": [[1, 2], [3]]}`); len(got["a"]) != 2 || len(got["b"]) != 1 {
		t.Errorf("%v", got)
	}
	const n = 20_000
	text := `{"columns": [0` + strings.Repeat(",0", n) + `], "data": [[]` + strings.Repeat(",[]", n) + `]}`
	if got := columns(text); len(got) != 0 {
		t.Errorf("%d columns", len(got))
	}
}

// TestLongLine: a line that no event is as long as ends the watch, also where it comes whole.
func TestLongLine(t *testing.T) {
	var l lines
	if _, err := l.add([]byte(`{"name": "` + strings.Repeat("x", maxLine) + `"}` + "\n")); err == nil {
		t.Error("it is taken")
	}
}
