package images

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNoClearText: a registry that is reached by TLS gets no password in clear text to where it sends its clients, for
// tokens or by a redirect; with TLS it does, and so does one that registries.conf calls insecure.
func TestNoClearText(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	var asked, known atomic.Int32
	token := func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user, password, _ := r.BasicAuth(); user == "me" && password == "secret" {
			known.Add(1)
		}
		fmt.Fprint(w, `{"token":"abc"}`)
	}
	plain := httptest.NewServer(http.HandlerFunc(token))
	defer plain.Close()
	var realm, redirect string
	registry := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			token(w, r)
		case redirect != "":
			http.Redirect(w, r, redirect, http.StatusTemporaryRedirect)
		case r.Header.Get("Authorization") == "Bearer abc":
			fmt.Fprint(w, "{}")
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+realm+`",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "https://")
	certs := filepath.Join(home, ".config", "containers", "certs.d", host)
	must(t, os.MkdirAll(certs, 0o700))
	must(t, os.WriteFile(filepath.Join(certs, "ca.crt"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: registry.Certificate().Raw}), 0o600))

	for _, tt := range []struct {
		name, realm, redirect, insecure string
		asked                           int32
		ok                              bool
	}{
		{"tokens in clear text", plain.URL + "/token", "", "false", 0, false},
		{"tokens by TLS", registry.URL + "/token", "", "false", 1, true},
		{"a redirect", registry.URL + "/token", plain.URL + "/v2/", "false", 0, false},
		{"as registries.conf says", plain.URL + "/token", "", "true", 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked.Store(0)
			known.Store(0)
			realm, redirect = tt.realm, tt.redirect
			conf := fmt.Sprintf("[[registry]]\nprefix = %q\nlocation = %q\ninsecure = %s\n", host, host, tt.insecure)
			s := openStore(t, Options{RegistriesConf: writeFile(t, "registries.conf", conf),
				AuthFile: filepath.Join(t.TempDir(), "auth.json")})
			_, err := s.Registries().Login(t.Context(), api.LoginParams{Registry: host, Username: "me", Password: "secret"})
			if (err == nil) != tt.ok || !tt.ok && (api.ErrorCode(err) != api.PermissionDenied ||
				!strings.Contains(err.Error(), "without TLS")) {
				t.Errorf("login: %v", err)
			}
			if asked.Load() != tt.asked || known.Load() != tt.asked {
				t.Errorf("%d requests for a token, %d with the password; want %d", asked.Load(), known.Load(), tt.asked)
			}
		})
	}
}
