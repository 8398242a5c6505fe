package images

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(p, []byte(content), 0o600))
	return p
}

// A policy file decides; without one everything is accepted; a broken one is
// an error and never means "none".
func TestSignaturePolicy(t *testing.T) {
	registry := it.StartRegistry(t)
	ref := push(t, registry, "app", twoLayers())
	domain, _, _ := strings.Cut(ref, "/")
	home := os.Getenv("HOME") // of TestMain
	tests := []struct {
		name, policy string
		code         api.Code // "" is success
	}{
		{"none", "", ""},
		{"accepts", `{"default":[{"type":"insecureAcceptAnything"}]}`, ""},
		{"rejects", `{"default":[{"type":"reject"}]}`, api.PermissionDenied},
		{"accepts this registry", `{"default":[{"type":"reject"}],"transports":{"docker":{"` + domain +
			`":[{"type":"insecureAcceptAnything"}]}}}`, ""},
		{"wants a signature", `{"default":[{"type":"signedBy","keyType":"GPGKeys","keyData":"` +
			base64.StdEncoding.EncodeToString([]byte("no key")) + `"}]}`, api.PermissionDenied},
		{"broken", `{"default":`, api.FailedPrecondition},
		{"empty", `{}`, api.FailedPrecondition},
		{"a scope of no image", `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{"https://` +
			domain + `":[{"type":"reject"}]}}}`, api.FailedPrecondition},
		{"no transport", `{"default":[{"type":"insecureAcceptAnything"}],"transports":{"dokcer":{"` + domain +
			`":[{"type":"reject"}]}}}`, api.FailedPrecondition},
	}
	for _, tt := range tests {
		for _, where := range []string{"option", "home"} {
			t.Run(tt.name+" by "+where, func(t *testing.T) {
				var opts Options
				file := filepath.Join(home, ".config/containers/policy.json")
				t.Cleanup(func() { must(t, os.RemoveAll(filepath.Dir(file))) })
				switch {
				case tt.policy == "":
				case where == "option":
					opts.PolicyFile = writeFile(t, "policy.json", tt.policy)
				default:
					must(t, os.MkdirAll(filepath.Dir(file), 0o700))
					must(t, os.WriteFile(file, []byte(tt.policy), 0o600))
				}
				s := openStore(t, opts)
				_, err := s.Pull(t.Context(), ref, PullOptions{})
				if tt.code == "" {
					must(t, err)
					return
				}
				var e *api.Error
				if !errors.As(err, &e) || e.Code != tt.code || e.Hint == "" {
					t.Errorf("error %v, want %s", err, tt.code)
				}
				wantClean(t, s, 0)
			})
		}
	}
	t.Run("missing file", func(t *testing.T) {
		s := openStore(t, Options{PolicyFile: filepath.Join(t.TempDir(), "missing")})
		if _, err := s.Pull(t.Context(), ref, PullOptions{}); api.ErrorCode(err) != api.FailedPrecondition {
			t.Errorf("error %v", err)
		}
	})
}

func TestRegistryLogin(t *testing.T) {
	registry := it.StartRegistry(t)
	push(t, registry, "app", twoLayers())
	guard := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, ok := r.BasicAuth(); !ok || user != "me" || pass != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, registry+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer guard.Close()
	ref := it.Ref(guard.URL, "app", "v1")
	domain, _, _ := strings.Cut(ref, "/")
	for login, want := range map[string]api.Code{"me:secret": "", "me:wrong": api.PermissionDenied} {
		auth := `{"auths":{"` + domain + `":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(login)) + `"}}}`
		s := openStore(t, Options{AuthFile: writeFile(t, "auth.json", auth)})
		_, err := s.Pull(t.Context(), ref, PullOptions{})
		if want == "" {
			must(t, err)
		} else if api.ErrorCode(err) != want {
			t.Errorf("as %s: %v", login, err)
		}
	}
}

// A mirror of registries.conf serves what its registry cannot.
func TestMirror(t *testing.T) {
	registry := it.StartRegistry(t)
	push(t, registry, "mirror/app", twoLayers())
	conf := "[[registry]]\nlocation = \"127.0.0.1:1/app\"\ninsecure = true\n[[registry.mirror]]\nlocation = \"" +
		strings.TrimPrefix(registry, "http://") + "/mirror/app\"\ninsecure = true\n"
	s := openStore(t, Options{RegistriesConf: writeFile(t, "registries.conf", conf)})
	img, err := s.Pull(t.Context(), "127.0.0.1:1/app:v1", PullOptions{})
	if err != nil || img.Ref != "127.0.0.1:1/app:v1" {
		t.Errorf("%v, %v", img, err)
	}
	// Twin: without the mirror nobody answers.
	s = openStore(t, Options{})
	if _, err := s.Pull(t.Context(), "127.0.0.1:1/app:v1", PullOptions{}); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("without the mirror: %v", err)
	}
}

// TestBlocked: what registries.conf blocks is not asked.
func TestBlocked(t *testing.T) {
	registry := it.StartRegistry(t)
	push(t, registry, "app", twoLayers())
	for blocked, code := range map[string]api.Code{"true": api.PermissionDenied, "false": ""} {
		conf := "[[registry]]\nlocation = \"" + strings.TrimPrefix(registry, "http://") +
			"\"\ninsecure = true\nblocked = " + blocked + "\n"
		s := openStore(t, Options{RegistriesConf: writeFile(t, "registries.conf", conf)})
		_, err := s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
		if (err != nil) != (code != "") || err != nil && api.ErrorCode(err) != code {
			t.Errorf("blocked %s: %v", blocked, err)
		}
	}
}
