package images

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// cutting passes at most left bytes of a body on and then ends the connection.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	c.left -= n
	if c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestPullResumes: a layer comes whole over connections that end in the middle of it and
// from a registry that fails now and then, and what is there is not asked for again when
// the server takes ranges.
func TestPullResumes(t *testing.T) {
	registry := it.StartRegistry(t)
	noise := make([]byte, 4<<20)
	_, _ = rand.Read(noise)
	img := it.Image{Layers: []it.Layer{it.NewLayer(it.Tar(it.Text("noise", string(noise))), it.Gzip)}}
	push(t, registry, "app", img)
	blob := img.Layers[0]
	whole := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob.Data))
	}
	noRange := func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		whole(w, r)
	}
	cut := func(after int, serve http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { serve(&cutting{w, after}, r) }
	}
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
		}
	}
	other := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, len(blob.Data))))
	}
	always := cut(100_000, noRange)
	tests := map[string]struct {
		answers []http.HandlerFunc // to requests for the layer, the last one to all that follow
		ranges  []string           // of the first requests
		code    api.Code           // "" when it is pulled
		most    int32              // requests for the layer
	}{
		"cut twice": {[]http.HandlerFunc{cut(2<<20, whole), cut(1<<20, whole), whole},
			[]string{"", "bytes=2097152-", "bytes=3145728-"}, "", 3},
		"cut after little": {[]http.HandlerFunc{cut(1000, whole), cut(1000, whole), cut(1000, whole), whole},
			[]string{"", "bytes=1000-"}, "", 6},
		"no ranges": {[]http.HandlerFunc{cut(2<<20, noRange), noRange},
			[]string{"", "bytes=2097152-", ""}, "", 3},
		"busy": {[]http.HandlerFunc{status(503), status(500), whole}, nil, "", 3},
		"busy after a cut": {[]http.HandlerFunc{cut(2<<20, whole), status(502), status(504), whole},
			[]string{"", "bytes=2097152-"}, "", 4},
		"slow down": {[]http.HandlerFunc{cut(2<<20, whole), status(429, "Retry-After", "1"), whole},
			[]string{"", "bytes=2097152-", "bytes=2097152-"}, "", 3},
		"another layer later": {[]http.HandlerFunc{cut(2<<20, whole), other}, nil, api.Unavailable, 2},
		"always cut":          {[]http.HandlerFunc{always}, nil, api.Unavailable, 10},
		"always busy":         {[]http.HandlerFunc{status(503)}, nil, api.Unavailable, blobTries},
		"refused":             {[]http.HandlerFunc{status(403)}, nil, api.PermissionDenied, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			ranges := make(chan string, 100)
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/blobs/"+blob.Digest) {
					http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				n := int(requests.Add(1))
				ranges <- r.Header.Get("Range")
				tt.answers[min(n, len(tt.answers))-1](w, r)
			}))
			defer proxy.Close()
			s := openStore(t, Options{})
			start := time.Now()
			_, err := s.Pull(t.Context(), it.Ref(proxy.URL, "app", "v1"), PullOptions{})
			t.Logf("%d requests, %s: %v", requests.Load(), time.Since(start), err)
			if code := api.ErrorCode(err); (err == nil) != (tt.code == "") || err != nil && code != tt.code {
				t.Errorf("error %v, want %q", err, tt.code)
			}
			if n := requests.Load(); n > tt.most {
				t.Errorf("%d requests, want at most %d", n, tt.most)
			}
			for i, want := range tt.ranges {
				if got := <-ranges; got != want {
					t.Errorf("request %d asks for range %q, want %q", i, got, want)
				}
			}
			if err != nil {
				wantClean(t, s, 0)
			}
		})
	}
}

// TestPullAsksAgain: a registry that is busy for a moment is asked again, and one that
// stays so is not asked for ever.
func TestPullAsksAgain(t *testing.T) {
	registry := it.StartRegistry(t)
	push(t, registry, "app", twoLayers())
	for name, failing := range map[string]int32{"for a moment": manifestTries - 1, "for long": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/manifests/") && asked.Add(1) <= failing {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
			}))
			defer proxy.Close()
			s := openStore(t, Options{})
			_, err := s.Pull(t.Context(), it.Ref(proxy.URL, "app", "v1"), PullOptions{})
			if want := failing >= manifestTries; (err != nil) != want || want &&
				(api.ErrorCode(err) != api.Unavailable || asked.Load() != manifestTries) {
				t.Errorf("asked %d times: %v", asked.Load(), err)
			}
		})
	}
}
