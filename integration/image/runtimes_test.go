package image_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
)

// TestRuntimes: names of the configuration file stand for images wherever one is named.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "tiny", world.TinyImage(t)) // with the tag 1
	host := strings.TrimSuffix(ref, "tiny:1")
	w.Configure(t, "image: tiny\nruntimes:\n  tiny: tiny@1\n  \"tiny@*\": \""+host+"tiny:*\"\n  me: host\n")
	for _, name := range []string{"tiny", "tiny@1"} {
		if got := w.OK(t, "run", name); got != "tiny\n" {
			t.Errorf("%s: %q", name, got)
		}
		if got := w.OK(t, "image", "inspect", name); !strings.Contains(got, ref) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := w.OK(t, "run", "--", "sh", "-c", "echo default"); got != "default\n" { // the configured image
		t.Errorf("%q", got)
	}
	w.OK(t, "run", "me", "true")
	w.OK(t, "image", "pull", "-q", "tiny@1")
	w.OK(t, "image", "verify", "tiny")
	w.OK(t, "image", "tag", "tiny@1", "mine")
	// The version is the registry's business, and the error names what was asked for there.
	w.Run(t, "run", "tiny@2", "true").Want(t, 125).Says(t, host+"tiny:2", "try:")
	w.Run(t, "run", "--pull", "never", "python@3.11", "true").Want(t, 125).Says(t, "docker.io/library/python:3.11-slim")
	w.OK(t, "image", "rm", "tiny")

	// Read again, another table.
	w.Configure(t, "runtimes:\n  tiny: mine\n")
	w.OK(t, "config", "reload")
	if got := w.OK(t, "run", "--pull", "never", "tiny"); got != "tiny\n" {
		t.Errorf("reloaded: %q", got)
	}
	w.Configure(t, "runtimes:\n  a: b\n  b: a\n")
	w.Run(t, "config", "check").Want(t, 125).Says(t, "circles", "line 2")
	w.Configure(t, "")
	w.RemoveLayers(t)
}

// TestRuntimesOffline: a name that asks for a program is the host image, with a note, when
// there is no registry and the host has exactly that version; else it is the error.
func TestRuntimesOffline(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	// Docker's registry is, in this home, a port where nobody listens.
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.Path("home"), ".config", "containers")
	conf := "[[registry]]\nprefix = \"docker.io\"\nlocation = \"" + addr + "\"\ninsecure = true\n"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "registries.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/bash", "-c", "echo ${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(out))
	w.Run(t, "run", "bash@"+version, "--", "bash", "-c", "echo ${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]}").Want(t, 0).
		Says(t, version, "note:", "no registry can be reached for bash@"+version, "host image has bash "+version)
	if got := w.OK(t, "run", "--json", "bash@"+version, "true"); !strings.Contains(got, `"note"`) {
		t.Errorf("no note in %s", got)
	}
	w.Run(t, "run", "bash@"+version+".999", "true").Want(t, 125).Says(t, "cannot be reached")
	w.Run(t, "run", "--pull", "always", "bash@"+version, "true").Want(t, 125).Says(t, "cannot be reached")
	w.Run(t, "run", "bash:"+version, "true").Want(t, 125).Says(t, "cannot be reached")
	w.Configure(t, "runtimes:\n  bash@"+version+": docker.io/library/mine\n")
	w.OK(t, "config", "reload")
	w.Run(t, "run", "bash@"+version, "true").Want(t, 125).Says(t, "cannot be reached")
}
