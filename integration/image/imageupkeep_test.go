package image_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
)

// TestImageUpkeep: names, disk use, what may be removed, and damage.
func TestImageUpkeep(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	ref := world.Push(t, registry, "tiny", world.TinyImage(t))
	w.OK(t, "image", "pull", "-q", ref)

	// Names.
	if got := w.OK(t, "image", "tag", ref, "tiny:2"); got != "docker.io/library/tiny:2\n" {
		t.Errorf("tag: %q", got)
	}
	if got := w.OK(t, "run", "--pull", "never", "tiny:2"); got != "tiny\n" {
		t.Errorf("run: %q", got)
	}
	w.Run(t, "image", "tag", "none", "x").Want(t, 125).Says(t, "none", "try:")
	w.Run(t, "image", "tag", ref, "host").Want(t, 125).Says(t, "built in", "try:")

	// What it takes, and what is in use.
	type disk struct {
		Images []struct {
			Ref                string
			Bytes, UniqueBytes int64
			InUse              bool `json:"in_use"`
		}
		Bytes  int64
		Unused int64 `json:"unused_bytes"`
	}
	sb := w.Create(t, "tiny:2")
	d := world.Decode[disk](t, w.OK(t, "image", "du", "--json"))
	if len(d.Images) != 2 || !d.Images[0].InUse || d.Images[0].Bytes < 1<<20 || d.Bytes < d.Images[0].Bytes ||
		d.Unused != 0 {
		t.Errorf("du: %+v", d)
	}
	out(t, w.Run(t, "image", "du").Want(t, 0), "tiny:2", "yes", "total")
	if got := w.OK(t, "image", "prune", "-a"); got != "" {
		t.Errorf("removed although in use: %q", got)
	}

	// Damage is found, and not repaired under a sandbox.
	out(t, w.Run(t, "image", "verify").Want(t, 0), "good", ref, "tiny:2")
	file := find(t, filepath.Join(w.Root(), "data/images/layers"), "etc/passwd")
	if err := os.WriteFile(file, []byte("root::0:0::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out(t, w.Run(t, "image", "verify", "tiny:2").Want(t, 125).Says(t, "damaged", "try:"), `"etc/passwd" has`)
	w.Run(t, "image", "verify", "--repair", "tiny:2").Want(t, 125).Says(t, "in use", "try:")
	w.OK(t, "rm", "-f", sb)
	out(t, w.Run(t, "image", "verify", "--repair", "tiny:2").Want(t, 0), "repaired")
	out(t, w.Run(t, "image", "verify").Want(t, 0), "good")
	if got := w.OK(t, "run", "--pull", "never", "tiny:2", "sh", "-c",
		"while read l; do echo $l; done </etc/passwd"); !strings.Contains(got, "zero:x") {
		t.Errorf("repaired to %q", got)
	}

	// Nobody uses them any more.
	if got := w.OK(t, "image", "prune"); got != "" {
		t.Errorf("pruned: %q", got)
	}
	if got := w.OK(t, "image", "prune", "--all"); got != ref+"\ndocker.io/library/tiny:2\n" {
		t.Errorf("pruned: %q", got)
	}
	w.RemoveLayers(t)
}

// out checks what a command printed.
func out(t testing.TB, r world.Result, words ...string) world.Result {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(r.Stdout, word) {
			t.Errorf("%q printed %q, without %q", r.Args, r.Stdout, word)
		}
	}
	return r
}

// find is the one file of that name in the layers.
func find(t testing.TB, layers, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(layers, "*", "root", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", name, found, err)
	}
	return found[0]
}
