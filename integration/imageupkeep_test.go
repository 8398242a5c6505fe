package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
)

// TestImageUpkeep: names, disk use, what may be removed, and damage.
func TestImageUpkeep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	ref := push(t, registry, "tiny", tinyImage(t))
	w.ok(t, "image", "pull", "-q", ref)

	// Names.
	if got := w.ok(t, "image", "tag", ref, "tiny:2"); got != "docker.io/library/tiny:2\n" {
		t.Errorf("tag: %q", got)
	}
	if got := w.ok(t, "run", "--pull", "never", "tiny:2"); got != "tiny\n" {
		t.Errorf("run: %q", got)
	}
	w.run(t, "image", "tag", "none", "x").want(t, 125).says(t, "none", "try:")
	w.run(t, "image", "tag", ref, "host").want(t, 125).says(t, "built in", "try:")

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
	sb := w.create(t, "tiny:2")
	d := decode[disk](t, w.ok(t, "image", "du", "--json"))
	if len(d.Images) != 2 || !d.Images[0].InUse || d.Images[0].Bytes < 1<<20 || d.Bytes < d.Images[0].Bytes || d.Unused != 0 {
		t.Errorf("du: %+v", d)
	}
	w.run(t, "image", "du").want(t, 0).out(t, "tiny:2", "yes", "total")
	if got := w.ok(t, "image", "prune", "-a"); got != "" {
		t.Errorf("removed although in use: %q", got)
	}

	// Damage is found, and not repaired under a sandbox.
	w.run(t, "image", "verify").want(t, 0).out(t, "good", ref, "tiny:2")
	file := find(t, filepath.Join(w.root(), "data/images/layers"), "etc/passwd")
	if err := os.WriteFile(file, []byte("root::0:0::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.run(t, "image", "verify", "tiny:2").want(t, 125).says(t, "damaged", "try:").out(t, `"etc/passwd" has`)
	w.run(t, "image", "verify", "--repair", "tiny:2").want(t, 125).says(t, "in use", "try:")
	w.ok(t, "rm", "-f", sb)
	w.run(t, "image", "verify", "--repair", "tiny:2").want(t, 0).out(t, "repaired")
	w.run(t, "image", "verify").want(t, 0).out(t, "good")
	if got := w.ok(t, "run", "--pull", "never", "tiny:2", "sh", "-c", "while read l; do echo $l; done </etc/passwd"); !strings.Contains(got, "zero:x") {
		t.Errorf("repaired to %q", got)
	}

	// Nobody uses them any more.
	if got := w.ok(t, "image", "prune"); got != "" {
		t.Errorf("pruned: %q", got)
	}
	if got := w.ok(t, "image", "prune", "--all"); got != ref+"\ndocker.io/library/tiny:2\n" {
		t.Errorf("pruned: %q", got)
	}
	w.removeLayers(t)
}

// out checks what a command printed.
func (r result) out(t testing.TB, words ...string) result {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(r.stdout, word) {
			t.Errorf("%q printed %q, without %q", r.args, r.stdout, word)
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
