package registry

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.podman.io/image/v5/types"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestUnresolved: the hint about a name is about what is wrong with it.
func TestUnresolved(t *testing.T) {
	for want, err := range map[string]error{
		"check the spelling": &net.OpError{Op: "dial", Err: &net.DNSError{Name: "r.test", IsNotFound: true}},
		"/etc/resolv.conf": &net.OpError{Op: "dial", Err: &net.DNSError{Name: "r.test", Err: "server misbehaving",
			IsTemporary: true}},
		"HTTPS_PROXY": &url.Error{Op: "Get", URL: "https://r.test", Err: &net.OpError{Op: "proxyconnect", Net: "tcp",
			Err: &net.OpError{
				Op: "dial", Net: "tcp", Err: &net.DNSError{Name: "p.test", IsNotFound: true},
			}}},
	} {
		if e := unreachable(err); e == nil || !strings.Contains(e.Hint, want) {
			t.Errorf("%v: %+v, want %q", err, e, want)
		}
	}
}

// TestAuthEntry: which entry of a file an image's name gets, and what is in it.
func TestAuthEntry(t *testing.T) {
	file := func(content string) string {
		name := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const auths = `{
		"r.test": {"auth": "YTpi"}, "r.test/me": {"username": "me", "password": "pw"}, "r.test/empty": {},
		"id.test": {"identitytoken": "it"}, "both.test": {"auth": "YTo=", "identitytoken": "it"},
		"https://old.test/v1/": {"auth": "YTpi"}, "https://index.docker.io/v1/": {"auth": "aHViOnB3"}}`
	for key, want := range map[string]types.DockerAuthConfig{
		"r.test": {Username: "a", Password: "b"}, "r.test/x/y": {Username: "a", Password: "b"},
		"r.test/me/y": {Username: "me", Password: "pw"}, "r.test/empty/y": {Username: "a", Password: "b"},
		"id.test/x": {IdentityToken: "it"}, "both.test": {Username: "a", IdentityToken: "it"},
		"old.test/x": {Username: "a", Password: "b"}, "docker.io/library/x": {Username: "hub", Password: "pw"},
		"none.test/x": {},
	} {
		f := authFile{path: file(`{"auths": ` + auths + `}`)}
		if got, err := f.entry(key); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", key, got, err, want)
		}
		f = authFile{path: file(auths), legacy: true}
		if got, err := f.entry("docker.io/library/x"); err != nil || got.Username != "hub" {
			t.Errorf("legacy: %+v, %v", got, err)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1:5000": true, "127.8.9.1": true, "[::1]:5000": true,
		"[::1]":     true,
		"docker.io": false, "localhost.example.com": false, "127.0.0.1.example.com:5000": false, "10.0.0.1:5000": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("isLoopback(%q) = %v", host, got)
		}
	}
}

// TestPolicyScopes: which scopes an image of a registry can have, and what was meant by others.
func TestPolicyScopes(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for scope, want := range map[string]string{
		"": "ok", "ghcr.io": "ok", "r.test:5000": "ok", "localhost": "ok", "docker.io": "ok", "docker.io/library": "ok",
		"127.0.0.1:5000/x":          "ok",
		"docker.io/library/busybox": "ok", "docker.io/library/busybox:1": "ok", "ghcr.io/me/x" + digest: "ok",
		"*.example.com": "ok", "*.com": "ok",

		"https://ghcr.io": "ghcr.io", "ghcr.io/": "ghcr.io", "docker://docker.io/library/x": "docker.io/library/x",
		"ghcr.io/me/": "ghcr.io/me",
		"busybox":     "docker.io/library/busybox", "me/x": "docker.io/me/x",
		"docker.io/busybox:1":     "docker.io/library/busybox:1",
		"index.docker.io/library": "docker.io/library/library", "*.example.com:5000": "*.example.com",
		"*": "", "*.": "*.", "ghcr.*": "", "*.example.com/x": "*.example.com/x", "ghcr.io/Me": "", " ghcr.io": "",
		"ghcr.io/x y": "", "ghcr.io//x": "",
		"ghcr.io/x:1" + digest: "ghcr.io/x:1" + digest,
	} {
		meant, ok := dockerScope(scope)
		if ok != (want == "ok") || !ok && meant != want {
			t.Errorf("%q: %v, %q; want %q", scope, ok, meant, want)
		}
	}
}

// The folder of a HOME that may not be entered is not taken for one without a
// policy. Root may enter every folder.
func TestUnreadableHome(t *testing.T) {
	testenv.Axes(t, testenv.User)
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".config"), 0o000); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	err := checkHome()
	if os.Geteuid() == 0 {
		if err != nil {
			t.Error(err)
		}
		return
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.FailedPrecondition || !strings.Contains(e.Hint, "HOME") {
		t.Errorf("error %v", err)
	}
}

// TestLoginNames: the hosts of Docker Hub are one registry.
func TestLoginNames(t *testing.T) {
	c := &Config{OwnLookaside: func() (string, error) { return t.TempDir(), nil }}
	for in, want := range map[string]string{
		"docker.io": "docker.io", "index.docker.io": "docker.io", "index.docker.io/team": "docker.io/team",
		"localhost:5000": "localhost:5000",
		"ghcr.io/a/b":    "ghcr.io/a/b",
	} {
		if got, _, err := c.loginContext(in); err != nil || got != want {
			t.Errorf("%q is %q, %v", in, got, err)
		}
	}
}
