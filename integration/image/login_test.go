package image_test

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLogin: a password is stored in one file when the registry accepts it, nowhere else and
// never shown; pull and push then work, also by the next daemon; logout ends that.
func TestLogin(t *testing.T) {
	t.Parallel()
	w := world.New(t, "HUTCH_LOG=debug")
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	password := imagetest.Users["me"]
	w.ImportTiny(t, "tiny:1")
	ref := imagetest.Ref(registry, "team/tiny", "1")

	w.Run(t, "push", "-q", "tiny:1", ref).Want(t, 125).Says(t, "hutch login")
	w.Feed(t, "wrong-word\n", "login", "-u", "me", "--password-stdin", host).Want(t, 125).
		Says(t, "does not accept", "try:")
	w.Run(t, "login", "--get-login", host).Want(t, 125).Says(t, "nobody is logged in")
	file := filepath.Join(w.Path("run"), "containers/auth.json")
	if os.Geteuid() == 0 {
		file = filepath.Join(w.Root(), "data/home/containers/auth.json")
	}
	if r := w.Feed(t, password+"\n", "login", "-u", "me", "--password-stdin", host).
		Want(t, 0); !strings.Contains(r.Stdout, "as me; kept in "+file) {
		t.Errorf("it says %q, and the file is %s", r.Stdout, file)
	}
	if got := w.OK(t, "login", "--get-login", host); got != "me\n" {
		t.Errorf("logged in as %q", got)
	}
	w.OK(t, "push", "-q", "tiny:1", ref)
	w.OK(t, "rpc", "system.shutdown", `{"mode":"kill"}`)
	w.OK(t, "image", "pull", "-q", ref)
	w.Run(t, "rpc", "image.login", `{"registry":"`+host+`","username":"me","password":["`+password+`"]}`).Want(t, 125)
	w.Run(t, "login", "-u", "me", "-p", password, host).Want(t, 125).Says(t, "--password-stdin")
	w.Run(t, "login", host).Want(t, 125).Says(t, "no terminal")

	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	findsOnly(t, w, file, password, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	w.OK(t, "logout", host)
	findsOnly(t, w, "", password, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
	w.Run(t, "image", "pull", "-q", ref).Want(t, 125).Says(t, "hutch login")
	w.Run(t, "logout", host).Want(t, 125).Says(t, "nobody")
	w.OK(t, "image", "prune", "--all")
	w.RemoveLayers(t)
}

// findsOnly looks for texts in every file of the world but one.
func findsOnly(t *testing.T, w *world.World, but string, texts ...string) {
	t.Helper()
	found, files := false, 0
	err := filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
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
	w := world.New(t)
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	p, cmd := w.Terminal(t, "login", host)
	p.Sees("User name: ")
	p.Write("me\r")
	p.Sees("Password: ")
	p.Write(imagetest.Users["me"] + "\r")
	p.Sees("logged in")
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if screen := p.Rest(); strings.Contains(screen, imagetest.Users["me"]) {
		t.Errorf("the terminal shows %q", screen)
	}
	p, cmd = w.Terminal(t, "login", "-u", "me", host)
	p.Sees("Password: ")
	p.Write("\x03")
	if code := world.Await(t, cmd); code != 130 {
		t.Errorf("after Ctrl-C: exit code %d", code)
	}
}

// TestLoginFile: $REGISTRY_AUTH_FILE of an ordinary user is the file, and what docker login
// has stored is used without it.
func TestLoginFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		testenv.Require(t, probe.Check{Name: "user", Status: probe.No, Detail: "root's daemon is somebody else",
			Remedy: "run the tests as a user, too"})
	}
	registry := imagetest.StartPrivateRegistry(t, "me")
	host := strings.TrimPrefix(registry, "http://")
	file := filepath.Join(t.TempDir(), "auth.json")
	w := world.New(t, "REGISTRY_AUTH_FILE="+file)
	w.Feed(t, imagetest.Users["me"], "login", "-u", "me", "--password-stdin", host).Want(t, 0)
	data, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(data, []byte(host)) {
		t.Errorf("the file holds %s, %v", data, err)
	}
	docker := world.New(t)
	if err := os.WriteFile(filepath.Join(docker.Sub(t, "home/.docker"), "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := docker.OK(t, "login", "--get-login", host); got != "me\n" {
		t.Errorf("by Docker's file it is %q", got)
	}
	docker.Run(t, "logout", host).Want(t, 125).Says(t, "docker logout")
}
