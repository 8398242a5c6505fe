package images

import (
	"context"
	"encoding/base64"
	"io"
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

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// doorman stands before a registry: it asks who comes, counts what is sent and fails for a
// while when it is told to.
type doorman struct {
	*httptest.Server
	sent, fail atomic.Int32
	hold       func(r *http.Request) // may be nil
}

func newDoorman(t *testing.T, registry string) *doorman {
	t.Helper()
	u, err := url.Parse(registry)
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(u)
	d := &doorman{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "me" || pass != "s3cret-word" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost && d.fail.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPatch {
			d.sent.Add(1)
			if d.hold != nil {
				d.hold(r)
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *doorman) auth(t *testing.T, login string) string {
	domain := strings.TrimPrefix(d.URL, "http://")
	return writeFile(t, "auth.json", `{"auths":{"`+domain+`":{"auth":"`+
		base64.StdEncoding.EncodeToString([]byte(login))+`"}}}`)
}

// TestPush: an image goes to a registry that wants to know who sends it, and comes back.
func TestPush(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	d := newDoorman(t, it.StartRegistry(t))
	single := os.Geteuid() != 0
	s := openStore(t, Options{SingleUID: single, AuthFile: d.auth(t, "me:s3cret-word")})
	base := importBase(t, s)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "new"), []byte("new"), 0o600))
	made, err := commitTo(t, s, base, folder, "made:1")
	must(t, err)
	target := it.Ref(d.URL, "team/made", "v1")

	stranger := openStoreAt(t, s.Dir(), Options{SingleUID: single, AuthFile: d.auth(t, "me:wrong-word")})
	if _, err := stranger.Push(t.Context(), "made:1", target, nil); api.ErrorCode(err) != api.PermissionDenied ||
		strings.Contains(err.Error(), "wrong-word") {
		t.Errorf("with a wrong password: %v", err)
	}
	if n := d.sent.Load(); n != 0 {
		t.Errorf("%d parts were sent", n)
	}
	d.fail.Store(2)
	var phases []Phase
	pushed, err := s.Push(t.Context(), "made:1", target, func(p Progress) { phases = append(phases, p.Phase) })
	must(t, err)
	if d.fail.Load() > 0 || !slices.Contains(phases, PhasePushing) || phases[len(phases)-1] != PhaseDone ||
		pushed.Ref != target {
		t.Errorf("pushed %+v, %q", pushed, phases)
	}
	n := d.sent.Load()
	again, err := s.Push(t.Context(), made.ID, target, nil)
	must(t, err)
	if again.Digest != pushed.Digest || d.sent.Load() != n {
		t.Errorf("pushed again: %+v was %+v, and %d parts were sent", again, pushed, d.sent.Load()-n)
	}
	other := openStore(t, Options{SingleUID: single, AuthFile: d.auth(t, "me:s3cret-word")})
	img, err := other.Pull(t.Context(), target, PullOptions{})
	must(t, err)
	if img.Digest != pushed.Digest || img.ID != pushed.ID || !equalJSON(img.Config, made.Config) ||
		len(img.Layers) != 2 || img.Layers[1] != made.Layers[1] {
		t.Errorf("it comes back as %+v, was %+v", img, made)
	}
}

// TestPushFails: what goes wrong has a code, shows nothing in the registry and leaves nothing.
func TestPushFails(t *testing.T) {
	testenv.Require(t, probe.UserNamespaces(t.Context()))
	d := newDoorman(t, it.StartRegistry(t))
	s := openStore(t, Options{SingleUID: os.Geteuid() != 0, AuthFile: d.auth(t, "me:s3cret-word")})
	importBase(t, s)
	target := it.Ref(d.URL, "team/base", "v1")
	for target, want := range map[string]api.Code{
		"127.0.0.1:1/x:1": api.Unavailable, "UPPER": api.InvalidArgument, target + "@sha256:" +
			strings.Repeat("0", 64): api.InvalidArgument,
	} {
		if _, err := s.Push(t.Context(), "base:1", target, nil); api.ErrorCode(err) != want {
			t.Errorf("to %s: %v", target, err)
		}
	}
	for ref, want := range map[string]api.Code{"host": api.FailedPrecondition, "none:1": api.NotFound} {
		if _, err := s.Push(t.Context(), ref, target, nil); api.ErrorCode(err) != want {
			t.Errorf("of %s: %v", ref, err)
		}
	}
	d.fail.Store(100)
	if _, err := s.Push(t.Context(), "base:1", target, nil); api.ErrorCode(err) != api.Unavailable ||
		d.fail.Load() != 100-pushTries {
		t.Errorf("a registry that fails, %d times: %v", 100-d.fail.Load(), err)
	}
	d.fail.Store(0)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	d.hold = func(r *http.Request) {
		cancel(context.Canceled)
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client is gone when it reads
		<-r.Context().Done()
	}
	if _, err := s.Push(ctx, "base:1", target, nil); api.ErrorCode(err) != api.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	d.hold = nil
	if _, err := s.Pull(t.Context(), target, PullOptions{}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("the registry shows a half image: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), tmpDir, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	_, err := s.Push(t.Context(), "base:1", target, nil)
	must(t, err)
}
