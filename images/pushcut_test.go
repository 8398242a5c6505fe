package images

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// reset ends a connection as a router does that has forgotten it.
func reset(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// TestPushCut: a connection that breaks within a layer, before an answer or after the
// registry has taken everything costs another try, and as many as end; nothing half done
// is seen.
func TestPushCut(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	registry := it.StartRegistry(t)
	u, err := url.Parse(registry)
	must(t, err)
	s := openStore(t, Options{SingleUID: os.Geteuid() != 0})
	noise := make([]byte, 4<<20)
	_, _ = rand.Read(noise)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "noise"), noise, 0o600))
	base := importBase(t, s)
	made, err := commitTo(t, s, base, folder, "made:1")
	must(t, err)
	tests := map[string]struct {
		method string // whose requests are cut,
		times  int32  // the first so many,
		after  int64  // when so much of the body was read; -1: when the registry has done it
		code   api.Code
		most   int32 // of such requests
	}{
		"within a layer":      {http.MethodPatch, 2, 1 << 20, "", 5},
		"before the answer":   {http.MethodPut, 1, -1, "", 5},
		"before the upload":   {http.MethodPost, 2, 0, "", 5},
		"always":              {http.MethodPatch, 1000, 1 << 20, api.Unavailable, pushTries},
		"before it was known": {http.MethodGet, 1000, 0, api.Unavailable, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			proxy := httputil.NewSingleHostReverseProxy(u)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch n := asked.Load(); {
				case r.Method != tt.method:
				case asked.Add(1) > tt.times:
				case tt.after < 0:
					proxy.ServeHTTP(httptest.NewRecorder(), r)
					reset(w)
					return
				default:
					_, err := io.CopyN(io.Discard, r.Body, tt.after)
					if err != nil && !errors.Is(err, io.EOF) {
						t.Errorf("request %d: %v", n, err)
					}
					reset(w)
					return
				}
				proxy.ServeHTTP(w, r)
			}))
			defer server.Close()
			target := it.Ref(server.URL, "cut/"+strings.ReplaceAll(name, " ", "-"), "v1")
			var phases []Phase
			start := time.Now()
			pushed, err := s.Push(t.Context(), "made:1", target, func(p Progress) { phases = append(phases, p.Phase) })
			t.Logf("%d requests, %s: %v", asked.Load(), time.Since(start), err)
			if n := asked.Load(); n > tt.most {
				t.Errorf("%d requests, want at most %d", n, tt.most)
			}
			direct := strings.Replace(target, strings.TrimPrefix(server.URL, "http://"),
				strings.TrimPrefix(registry, "http://"), 1)
			other := openStore(t, Options{SingleUID: os.Geteuid() != 0})
			if tt.code != "" {
				if err == nil || api.ErrorCode(err) != tt.code {
					t.Errorf("error %v, want %s", err, tt.code)
				}
				if _, err := other.Pull(t.Context(), direct, PullOptions{}); api.ErrorCode(err) != api.NotFound {
					t.Errorf("the registry shows something: %v", err)
				}
				return
			}
			must(t, err)
			if !slices.Contains(phases, PhasePacking) || !slices.Contains(phases, PhasePushing) {
				t.Errorf("phases %q", phases)
			}
			if img, err := other.Pull(t.Context(), direct, PullOptions{}); err != nil || img.Digest != pushed.Digest ||
				img.ID != made.ID && len(img.Layers) != 2 {
				t.Errorf("it comes back as %+v, %v", img, err)
			}
		})
	}
}
