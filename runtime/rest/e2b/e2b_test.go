package e2b

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
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
		got, err := json.Marshal(linesOf(&tt.res, tt.code))
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
	routes := envd{s}.routes()
	maps.Copy(routes, interpreter{s}.routes())
	for pattern, h := range routes {
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
			done, _ := envd{s}.parts(httptest.NewRecorder(), r, c, multipart.NewReader(bytes.NewReader(body), boundary), "")
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

// TestNames: the sandbox's own user is user, in whichever form it was said, and nobody else is.
func TestNames(t *testing.T) {
	for _, tt := range []struct {
		user       string
		id         uint32
		uid0, gid0 string
	}{{"", 0, "user", "user"}, {"root", 0, "user", "user"}, {"0:0", 0, "user", "user"}, {"1000", 1000, "user", "user"},
		{"1000:50", 1000, "user", "1000"}, {"1000:0", 0, "root", "user"}, {"1000", 0, "root", "root"},
		{"web", 0, "root", "root"}, {"web", 33, "33", "33"}} {
		c := &call{sb: api.Sandbox{User: tt.user}}
		if u, g := nameOf(c, tt.id, false), nameOf(c, tt.id, true); u != tt.uid0 || g != tt.gid0 {
			t.Errorf("%q: %d is %s:%s, want %s:%s", tt.user, tt.id, u, g, tt.uid0, tt.gid0)
		}
	}
}

// TestMetadata: headers are metadata under names in lower case; what no header can carry is refused.
func TestMetadata(t *testing.T) {
	h := http.Header{}
	h.Set("X-Metadata-Author", "me")
	h.Set("Content-Type", "x")
	metadata, attributes, err := metadataFrom(h)
	if err != nil || len(metadata) != 1 || metadata["author"] != "me" || attributes["e2b.author"] != "me" {
		t.Errorf("%v %v %v", metadata, attributes, err)
	}
	for name, value := range map[string]string{"X-Metadata-": "x", "X-Metadata-A": "\x01", "X-Metadata-B": "\u00e4"} {
		if _, _, err := metadataFrom(http.Header{name: {value}}); err == nil {
			t.Errorf("%q: %q is metadata", name, value)
		}
	}
	f := api.File{Attributes: map[string]string{"e2b.": "", "e2b.a": "1", "other": "2", "hutch.x": "3"}}
	if got := metadataOf(&f); len(got) != 1 || got["a"] != "1" {
		t.Errorf("%v", got)
	}
}

// TestSpan: metrics are of now, and of no other time that is asked for.
func TestSpan(t *testing.T) {
	for query, ok := range map[string]bool{"": true, "start=1&end=2": true, "start=x": false, "end=-1": false,
		"end=9223372036854775807": false} {
		q, _ := url.ParseQuery(query)
		from, to, err := span(q)
		if (err == nil) != ok || ok && query != "" && (from != 1 || to != 2) {
			t.Errorf("%q: %d to %d, %v", query, from, to, err)
		}
	}
}

// TestExported: values are values to a shell, whatever is in them, and names are names.
func TestExported(t *testing.T) {
	code, err := exported(map[string]string{"B": "it's; $(x)", "A": ""})
	if want := `export A=''; export B='it'\''s; $(x)'; `; err != nil || code != want {
		t.Errorf("%s %v, want %s", code, err, want)
	}
	for _, name := range []string{"", "1A", "A B", "A;B", "A=B", "A\n", "ä"} {
		if _, err := exported(map[string]string{name: "x"}); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}
