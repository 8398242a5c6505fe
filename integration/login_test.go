package integration_test

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLogin: a password is stored in one file when the registry accepts it, nowhere else and
// never shown; pull and push then work, also by the next daemon; logout ends that.
func TestLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HUTCH_LOG=debug")
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	password := imagetest.Users["me"]
	w.importTiny(t, "tiny:1")
	ref := imagetest.Ref(registry, "team/tiny", "1")

	w.run(t, "push", "-q", "tiny:1", ref).want(t, 125).says(t, "hutch login")
	w.feed(t, "wrong-word\n", "login", "-u", "me", "--password-stdin", host).want(t, 125).says(t, "does not accept", "try:")
	w.run(t, "login", "--get-login", host).want(t, 125).says(t, "nobody is logged in")
	if r := w.feed(t, password+"\n", "login", "-u", "me", "--password-stdin", host).want(t, 0); !strings.Contains(r.stdout, "as me") {
		t.Errorf("it says %q", r.stdout)
	}
	if got := w.ok(t, "login", "--get-login", host); got != "me\n" {
		t.Errorf("logged in as %q", got)
	}
	w.ok(t, "push", "-q", "tiny:1", ref)
	w.ok(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
	w.ok(t, "image", "pull", "-q", ref)
	w.run(t, "rpc", "image.login", `{"registry":"`+host+`","username":"me","password":["`+password+`"]}`).want(t, 125)
	w.run(t, "login", "-u", "me", "-p", password, host).want(t, 125).says(t, "--password-stdin")
	w.run(t, "login", host).want(t, 125).says(t, "no terminal")

	file := filepath.Join(w.path("run"), "containers/auth.json")
	if os.Geteuid() == 0 {
		file = filepath.Join(w.root(), "data/home/containers/auth.json")
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	w.findsOnly(t, file, password, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	w.ok(t, "logout", host)
	w.findsOnly(t, "", password, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	w.run(t, "image", "pull", "-q", ref).want(t, 125).says(t, "hutch login")
	w.run(t, "logout", host).want(t, 125).says(t, "nobody")
	w.ok(t, "image", "prune", "--all")
	w.removeLayers(t)
}

// findsOnly looks for texts in every file of the world but one.
func (w *world) findsOnly(t *testing.T, but string, texts ...string) {
	t.Helper()
	found, files := false, 0
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		for _, text := range texts {
			if bytes.Contains(data, []byte(text)) {
				if found = found || path == but; path != but {
					t.Errorf("%s holds the password", path)
				}
			}
		}
		return err
	})
	if err != nil || files == 0 || found != (but != "") {
		t.Errorf("%d files, found where it is to be: %t, %v", files, found, err)
	}
}

// TestLoginTerminal: who is at a terminal is asked, and a password is not shown.
func TestLoginTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	p, cmd := w.terminal(t, "login", host)
	p.sees("User name: ")
	p.write("me\r")
	p.sees("Password: ")
	p.write(imagetest.Users["me"] + "\r")
	p.sees("logged in")
	if code := await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if screen := p.rest(); strings.Contains(screen, imagetest.Users["me"]) {
		t.Errorf("the terminal shows %q", screen)
	}
	p, cmd = w.terminal(t, "login", "-u", "me", host)
	p.sees("Password: ")
	p.write("\x03")
	if code := await(t, cmd); code != 130 {
		t.Errorf("after Ctrl-C: exit code %d", code)
	}
}

// TestLoginFile: $REGISTRY_AUTH_FILE of an ordinary user is the file, and what docker login
// has stored is used without it.
func TestLoginFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		testenv.Require(t, probe.Check{Name: "user", Status: probe.No, Detail: "root's daemon is somebody else", Remedy: "run the tests as a user, too"})
	}
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	file := filepath.Join(t.TempDir(), "auth.json")
	w := newWorld(t, "REGISTRY_AUTH_FILE="+file)
	w.feed(t, imagetest.Users["me"], "login", "-u", "me", "--password-stdin", host).want(t, 0)
	data, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(data, []byte(host)) {
		t.Errorf("the file holds %s, %v", data, err)
	}
	docker := newWorld(t)
	if err := os.WriteFile(filepath.Join(docker.sub(t, "home/.docker"), "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := docker.ok(t, "login", "--get-login", host); got != "me\n" {
		t.Errorf("by Docker's file it is %q", got)
	}
	docker.run(t, "logout", host).want(t, 125).says(t, "docker logout")
}
