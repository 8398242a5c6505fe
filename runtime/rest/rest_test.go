package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// alone is a server whose daemon never answers.
func alone() *Server {
	one := []*Client{OneClient("0123456789abcdef", nil)}
	return New(Config{Clients: func() []*Client { return one }, Log: slog.New(slog.DiscardHandler),
		Connect: func(context.Context) (*client.Client, error) { return nil, errors.New("no daemon") }})
}

// TestRoutes: each path has a name of its own and all that the document says of it.
func TestRoutes(t *testing.T) {
	s := alone()
	doc, err := describe(s.routes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range s.routes {
		r := &s.routes[i]
		if r.name == "" || names[r.name] || !strings.HasSuffix(r.summary, ".") || r.tag == "" || r.serve == nil {
			t.Errorf("%s %s: %+v", r.method, r.path, r)
		}
		names[r.name] = true
		if !bytes.Contains(text, []byte(`"operationId":"`+r.name+`"`)) {
			t.Errorf("the document lacks %s", r.name)
		}
	}
	s.Handler() // panics where two paths are the same
}

// TestFollower: characters stay whole however the bytes come, and offsets are those of the bytes.
func TestFollower(t *testing.T) {
	text := "a\u00e9\u4e16\U0001F986\xff\xfeb"
	for cut := 1; cut <= len(text); cut++ {
		w := httptest.NewRecorder()
		f := follower{out: stream(w)}
		for off := 0; off < len(text); off += cut {
			err := f.piece(client.Output{Stream: api.Stdout, Offset: int64(off),
				Data: []byte(text[off:min(len(text), off+cut)])})
			if err != nil {
				t.Fatal(err)
			}
		}
		var got []byte
		for line := range strings.Lines(w.Body.String()) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var o Output
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				t.Fatal(err)
			}
			if o.Offset != int64(len(got)) {
				t.Errorf("cut at %d: offset %d after %d bytes", cut, o.Offset, len(got))
			}
			piece := []byte(o.Data)
			if o.Encoding == api.Base64 {
				if err := json.Unmarshal([]byte(`"`+o.Data+`"`), &piece); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, piece...)
		}
		if rest := string(f.rest[0]); string(got)+rest != text || len(rest) >= utf8.UTFMax {
			t.Errorf("cut at %d: %q and %q", cut, got, rest)
		}
	}
}

// TestLimited: connections beyond the bound wait until one ends.
func TestLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limited(inner, 1)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	defer dial().Close()
	first := <-accepted
	defer dial().Close()
	select {
	case <-accepted:
		t.Fatal("a second connection was accepted beside the first")
	default:
	}
	_ = first.Close()
	_ = first.Close() // gives back one place, and not two
	second := <-accepted
	_ = l.Close()
	if _, more := <-accepted; more {
		t.Error("accepted after Close")
	}
	_ = second.Close()
}

// TestEncode: the daemon's own types have the names of REST, also in what REST has of its own; a client's names stay.
func TestEncode(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{api.CodeResult{Exec: "ex_1", ExitCode: 3}, `"exitCode":3`},
		{api.Network{Network: api.NetPolicy{AllowCIDRs: []string{"10.0.0.0/8"}}}, `"allowCIDRs":["10.0.0.0/8"]`},
		{Result{ProcessID: "ex_1", Denials: []api.Denial{{HowToAllow: "--allow a"}}}, `"howToAllow":"--allow a"`},
		{Sandbox{SandboxID: "sb_1", Metadata: map[string]string{"a_b": "c"}}, `"metadata":{"a_b":"c"}`},
	} {
		if text, err := encode(tt.v); err != nil || !strings.Contains(string(text), tt.want) {
			t.Errorf("%T: %s, %v; want %s", tt.v, text, err, tt.want)
		}
	}
	for name, want := range map[string]string{"exit_code": "exitCode", "a": "a", "a__b_": "aB", "": "", "_x": "X"} {
		if got := camel(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestPatient: a write has a bound, and the next answer on the connection does not begin with it.
func TestPatient(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	h := patient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))
	for range 2 {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	}
	if len(w.set) != 4 || !w.set[0].IsZero() || w.set[1].IsZero() || !w.set[2].IsZero() || w.set[3].IsZero() {
		t.Errorf("deadlines: %v", w.set)
	}
}

// deadlines notes those of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// FuzzRequest: whatever is asked, the answer is a problem or what there is without a daemon, in time in proportion to
// what came.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST", "/sandboxes", `{"image":"host","limits":{"cpus":1}}`},
		{"PATCH", "/sandboxes/x", `{"network":{"allow":["host:1"]}}`},
		{"POST", "/sandboxes/x/processes", `{"cmd":"true","args":["a"]}`},
		{"GET", "/sandboxes/x/files?path=%2F", ``},
		{"PATCH", "/sandboxes/x/files", `{"from":"a","to":"b"}`},
		{"DELETE", "/sandboxes/x/ports/80", ``},
		{"GET", "/openapi.json", ``},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	h := alone().Handler()
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequest(method, "http://localhost/", strings.NewReader(body))
		if err != nil || !strings.HasPrefix(target, "/") {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil {
			return
		}
		r.Host = "localhost"
		r.Header.Set("Authorization", "Bearer 0123456789abcdef")
		w := httptest.NewRecorder()
		cost.Of(t, len(method)+len(target)+len(body), func() { h.ServeHTTP(w, r) })
		if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" &&
			w.Code != http.StatusMovedPermanently {
			t.Errorf("%s %q: %d %v", method, target, w.Code, w.Header())
		}
		if w.Code == http.StatusInternalServerError && !strings.Contains(w.Body.String(), "no daemon") {
			t.Errorf("%s %q: %s", method, target, w.Body)
		}
	})
}

// FuzzForm: files of a form go where the form says, and nowhere else.
func FuzzForm(f *testing.F) {
	f.Add("/data/", "table.csv")
	f.Add("/data/", "../../etc/passwd")
	f.Add("/data", "x")
	f.Add("", "x/y/..")
	f.Fuzz(func(t *testing.T, to, name string) {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		part, err := w.CreateFormFile("file", name)
		if err != nil {
			return
		}
		_, _ = io.WriteString(part, "x")
		_ = w.Close()
		cost.Of(t, len(to)+form.Len(), func() {
			got, err := multipart.NewReader(&form, w.Boundary()).NextPart()
			if err != nil || got.FileName() == "" {
				return
			}
			at := target(to, got.FileName())
			if rest, ok := strings.CutPrefix(at, to); !ok || strings.HasSuffix(to, "/") &&
				strings.Contains(rest, "/") || !strings.HasSuffix(to, "/") && rest != "" {
				t.Errorf("%q of %q goes to %q", name, to, at)
			}
		})
	})
}
