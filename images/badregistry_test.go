package images

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// tokens is a registry whose endpoint for tokens answers so.
func tokens(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
			return
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// TestLoginNowhere: logging in where no registry or no token is says so, and nothing of images.
func TestLoginNowhere(t *testing.T) {
	for want, handler := range map[string]http.HandlerFunc{
		"an endpoint for tokens that gives none": tokens(http.StatusNotFound, "404 page not found"),
		"no registry answers there":              http.NotFound,
	} {
		server := httptest.NewServer(handler)
		defer server.Close()
		s := openStore(t, Options{AuthFile: filepath.Join(t.TempDir(), "auth.json")})
		_, err := login(t, s, strings.TrimPrefix(server.URL, "http://"), "me", "s3cret-word")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "no such image") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestPullFromABadRegistry: whatever a registry answers, a pull ends soon with an error
// that says what is wrong, after a few requests, and leaves nothing.
func TestPullFromABadRegistry(t *testing.T) {
	const manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	isManifest := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if isManifest(r) {
				w.WriteHeader(code)
			}
		}
	}
	answer := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if isManifest(r) {
				w.Header().Set("Content-Type", kind)
				_, _ = fmt.Fprint(w, body)
			}
		}
	}
	challenge := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", text)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		code    api.Code
		words   string
	}{
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, api.Unavailable, "manifest"},
		"silent later": {func(_ http.ResponseWriter, r *http.Request) {
			if isManifest(r) {
				<-r.Context().Done()
			}
		}, api.Unavailable, "manifest"},
		"endless redirects": {func(w http.ResponseWriter, r *http.Request) {
			if isManifest(r) {
				http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			}
		}, api.Unavailable, "redirects"},
		"unauthorized":   {status(http.StatusUnauthorized), api.PermissionDenied, "authentication"},
		"forbidden":      {status(http.StatusForbidden), api.PermissionDenied, "403"},
		"no such":        {status(http.StatusNotFound), api.NotFound, ""},
		"slow down":      {status(http.StatusTooManyRequests), api.Unavailable, "manifest"},
		"internal error": {status(http.StatusInternalServerError), api.Unavailable, "500"},
		"bad gateway":    {status(http.StatusBadGateway), api.Unavailable, "502"},
		"teapot":         {status(http.StatusTeapot), api.Unavailable, "418"},
		"token for ever": {func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/token") {
				_, _ = fmt.Fprint(w, `{"token":"never good"}`)
				return
			}
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
		}, api.PermissionDenied, "authentication"},
		"tokens from a page": {tokens(http.StatusOK, "<html>log in</html>"), api.Unavailable,
			"an endpoint for tokens that gives none"},
		"tokens from nowhere": {tokens(http.StatusNotFound, "404 page not found"), api.Unavailable,
			"an endpoint for tokens that gives none"},
		"tokens not for you": {tokens(http.StatusForbidden, "{}"), api.PermissionDenied, ""},
		"tokens of no endpoint": {challenge(`Bearer service="x"`), api.Unavailable,
			"an endpoint for tokens that gives none"},
		"tokens fail": {tokens(http.StatusBadGateway, "{}"), api.Unavailable, "the registry failed"},
		"huge manifest": {func(w http.ResponseWriter, r *http.Request) {
			if isManifest(r) {
				w.Header().Set("Content-Type", manifestType)
				piece := []byte(strings.Repeat(" ", 1<<20))
				for range 100 {
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			}
		}, api.InvalidArgument, "manifest"},
		"no manifest":    {answer(manifestType, "not JSON"), api.InvalidArgument, "manifest"},
		"a page":         {answer("text/html", "<html>log in</html>"), api.InvalidArgument, "manifest"},
		"empty manifest": {answer(manifestType, "{}"), api.InvalidArgument, "manifest"},
		"empty list": {answer("application/vnd.oci.image.index.v1+json", `{"schemaVersion":2,"manifests":[]}`),
			api.FailedPrecondition, "platform"},
		"schema 1": {answer("application/vnd.docker.distribution.manifest.v1+prettyjws",
			`{"schemaVersion":1,"name":"app","tag":"v1","architecture":"amd64","fsLayers":[{"blobSum":"sha256:`+
				strings.Repeat("0", 64)+`"}],"history":[{"v1Compatibility":"{\"id\":\"x\"}"}],"signatures":[]}`),
			api.Unimplemented, "schema 1"},
		"digests of nonsense": {answer(manifestType, `{"schemaVersion":2,"mediaType":"`+manifestType+
			`","config":{"mediaType":"x","size":2,"digest":"sha256:../../etc"},"layers":[]}`), api.InvalidArgument,
			"manifest"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				tt.handler(w, r)
			}))
			defer server.Close()
			s := openStore(t, Options{Stall: 3 * time.Second})
			start := time.Now()
			_, err := s.Pull(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/app:v1", PullOptions{})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Hint == "" || !strings.Contains(e.Error(), tt.words) {
				t.Errorf("%v (%+v), want %s with %q", err, e, tt.code, tt.words)
			}
			if n := requests.Load(); n > 15 {
				t.Errorf("%d requests", n)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
			t.Logf("%d requests: %v (%s)", requests.Load(), err, e.Hint)
			wantClean(t, s, 0)
		})
	}
}
