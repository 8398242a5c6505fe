package integration_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
)

// TestPush: what a sandbox has written goes to a registry, and comes back from there.
func TestPush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	w.importTiny(t, "base:1")
	sb := w.create(t, "-u", "0", "base:1")
	w.ok(t, "exec", sb, "/bin/sh", "-c", written)
	w.ok(t, "commit", "-q", sb, "made:1")
	w.ok(t, "rm", "-f", sb)
	look := []string{"-u", "0", "made:1", "/bin/sh", "-c", show}
	want := w.ok(t, append([]string{"run", "--pull", "never"}, look...)...)
	ref := imagetest.Ref(registry, "team/made", "1")
	r := w.run(t, "push", "made:1", ref).want(t, 0).says(t, "pushing")
	digest := strings.TrimSpace(r.stdout)
	w.run(t, "push", "made:1", ref).want(t, 0).says(t, "present")
	w.ok(t, "image", "rm", "made:1")
	if got := strings.TrimSpace(w.ok(t, "image", "pull", "-q", ref)); got != digest {
		t.Errorf("pulled %s, pushed %s", got, digest)
	}
	look[2] = ref
	if got := w.ok(t, append([]string{"run"}, look...)...); got != want {
		t.Errorf("it shows\n%s\nwas\n%s", got, want)
	}
	w.run(t, "push", "none:1", ref).want(t, 125).says(t, "no image", "try:")
	w.run(t, "push", "host", ref).want(t, 125).says(t, "own programs", "try:")
	w.removeLayers(t)
}
