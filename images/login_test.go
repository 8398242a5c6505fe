package images

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// login logs in, and fails the test where an error shows the password.
func login(t *testing.T, s *Store, registry, user, password string) (api.Login, error) {
	t.Helper()
	r, err := s.Registries().Login(t.Context(),
		api.LoginParams{Registry: registry, Username: user, Password: api.Secret(password)})
	if err != nil && strings.Contains(err.Error(), password) {
		t.Errorf("the error shows the password: %v", err)
	}
	return r, err
}

// TestLogin: credentials are stored when the registry knows them, pulls use each registry's
// own, and they end with logout.
func TestLogin(t *testing.T) {
	mine, yours := it.StartPrivateRegistry(t, "me"), it.StartPrivateRegistry(t, "you")
	refs := map[string]string{}
	for registry, user := range map[string]string{mine: "me", yours: "you"} {
		push(t, it.AsUser(registry, user), "app", twoLayers())
		refs[user] = it.Ref(registry, "app", "v1")
	}
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	file := filepath.Join(t.TempDir(), "sub", "auth.json")
	s := openStore(t, Options{AuthFile: file})
	pulls := func(user string, want api.Code) {
		t.Helper()
		if _, err := s.Pull(t.Context(), refs[user], PullOptions{}); api.ErrorCode(err) != want &&
			(err != nil || want != "") {
			t.Errorf("pull from %s's: %v, want %q", user, err, want)
		}
	}
	pulls("me", api.PermissionDenied)
	for _, wrong := range [][2]string{{"me", "wrong-word"}, {"you", "s3cret-word"}} {
		if _, err := login(t, s, host(mine), wrong[0], wrong[1]); api.ErrorCode(err) != api.PermissionDenied {
			t.Errorf("login as %q: %v", wrong, err)
		}
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("something was stored")
	}
	for registry, user := range map[string]string{mine: "me", yours: "you"} {
		r, err := login(t, s, host(registry), user, it.Users[user])
		must(t, err)
		if r.Username != user || r.Registry != host(registry) || r.Stored != file {
			t.Errorf("logged in: %+v", r)
		}
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	pulls("me", "")
	pulls("you", "")
	if r, err := s.Registries().LoginOf(t.Context(), host(yours)); err != nil || r.Username != "you" {
		t.Errorf("login: %+v, %v", r, err)
	}
	must(t, s.Remove(refs["me"], nil))
	must(t, s.Registries().Logout(t.Context(), host(mine)))
	pulls("me", api.PermissionDenied)
	if _, err := s.Registries().LoginOf(t.Context(), host(mine)); api.ErrorCode(err) != api.NotFound {
		t.Errorf("login after logout: %v", err)
	}
	if err := s.Registries().Logout(t.Context(), host(mine)); api.ErrorCode(err) != api.NotFound {
		t.Errorf("logout twice: %v", err)
	}
	must(t, s.Remove(refs["you"], nil))
	pulls("you", "") // still
	// Below a path only.
	_, err = login(t, s, host(mine)+"/team", "me", it.Users["me"])
	must(t, err)
	pulls("me", api.PermissionDenied)
	push(t, it.AsUser(mine, "me"), "team/app", twoLayers())
	_, err = s.Pull(t.Context(), it.Ref(mine, "team/app", "v1"), PullOptions{})
	must(t, err)
}

// TestLoginHelper: a credential helper keeps what a file would, and says what it likes.
func TestLoginHelper(t *testing.T) {
	registry := it.StartPrivateRegistry(t, "me")
	push(t, it.AsUser(registry, "me"), "app", twoLayers())
	host := strings.TrimPrefix(registry, "http://")
	bin, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	script := `#!/bin/sh
case "$1" in
store) cat > ` + kept + `;;
get) if [ -f ` + kept + ` ]; then cat ` + kept + `; else echo "credentials not found in native keychain"; exit 1; fi;;
erase) rm ` + kept + `;;
esac
`
	must(t, os.WriteFile(filepath.Join(bin, "docker-credential-test"), []byte(script), 0o700))
	must(t, os.WriteFile(filepath.Join(bin, "docker-credential-echo"), []byte("#!/bin/sh\ncat; exit 1\n"), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	file := writeFile(t, "auth.json", `{"auths":{},"credHelpers":{"`+host+`":"test"}}`)
	s := openStore(t, Options{AuthFile: file})
	_, err := login(t, s, host, "me", it.Users["me"])
	must(t, err)
	if data, err := os.ReadFile(file); err != nil || strings.Contains(string(data), `"auth":`) {
		t.Errorf("the file holds %s, %v", data, err)
	}
	_, err = s.Pull(t.Context(), it.Ref(registry, "app", "v1"), PullOptions{})
	must(t, err)
	if r, err := s.Registries().LoginOf(t.Context(), host); err != nil || r.Username != "me" {
		t.Errorf("login: %+v, %v", r, err)
	}
	must(t, s.Registries().Logout(t.Context(), host))
	if _, err := os.Lstat(kept); err == nil {
		t.Error("the helper still has it")
	}
	s = openStore(t, Options{AuthFile: writeFile(t, "auth.json", `{"credHelpers":{"`+host+`":"echo"}}`)})
	if _, err := login(t, s, host, "me", it.Users["me"]); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("with a helper that fails and talks: %v", err)
	}
	s = openStore(t, Options{AuthFile: writeFile(t, "auth.json", `{"credHelpers":{"`+host+`":"not-there"}}`)})
	if _, err := login(t, s, host, "me", it.Users["me"]); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("with a helper that is not there: %v", err)
	}
}

// TestLoginFails: what is no registry has an error that says so, soon, and nothing is stored.
func TestLoginFails(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().
			Done()
	}))
	defer silent.Close()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	file := filepath.Join(t.TempDir(), "auth.json")
	s := openStore(t, Options{AuthFile: file, Stall: time.Second})
	for registry, want := range map[string]api.Code{
		"": api.InvalidArgument, "https://docker.io": api.InvalidArgument, "host:port": api.InvalidArgument,
		"a b":        api.InvalidArgument,
		"host/UPPER": api.InvalidArgument, "host/": api.InvalidArgument, "host/a:tag": api.InvalidArgument,
		"../x":        api.InvalidArgument,
		"127.0.0.1:1": api.Unavailable, strings.TrimPrefix(silent.URL, "http://"): api.Unavailable,
		strings.TrimPrefix(page.URL, "http://"): api.NotFound,
	} {
		if _, err := login(t, s, registry, "me", "s3cret-word"); api.ErrorCode(err) != want {
			t.Errorf("login to %q: %v, want %s", registry, err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	p := api.LoginParams{Registry: strings.TrimPrefix(silent.URL, "http://"), Username: "me", Password: "s3cret-word"}
	if _, err := s.Registries().Login(ctx, p); api.ErrorCode(err) != api.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Lstat(file); err == nil {
		t.Error("something was stored")
	}
}
