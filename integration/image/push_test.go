package image_test

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
)

// TestPush: what a sandbox has written goes to a registry, and comes back from there.
func TestPush(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	w.ImportTiny(t, "base:1")
	sb := w.Create(t, "-u", "0", "base:1")
	w.OK(t, "exec", sb, "/bin/sh", "-c", written)
	w.OK(t, "commit", "-q", sb, "made:1")
	w.OK(t, "rm", "-f", sb)
	look := []string{"-u", "0", "made:1", "/bin/sh", "-c", show}
	want := w.OK(t, append([]string{"run", "--pull", "never"}, look...)...)
	ref := imagetest.Ref(registry, "team/made", "1")
	r := w.Run(t, "push", "made:1", ref).Want(t, 0).Says(t, "pushing")
	digest := strings.TrimSpace(r.Stdout)
	w.Run(t, "push", "made:1", ref).Want(t, 0).Says(t, "present")
	w.OK(t, "image", "rm", "made:1")
	if got := strings.TrimSpace(w.OK(t, "image", "pull", "-q", ref)); got != digest {
		t.Errorf("pulled %s, pushed %s", got, digest)
	}
	look[2] = ref
	if got := w.OK(t, append([]string{"run"}, look...)...); got != want {
		t.Errorf("it shows\n%s\nwas\n%s", got, want)
	}
	w.Run(t, "push", "none:1", ref).Want(t, 125).Says(t, "no image", "try:")
	w.Run(t, "push", "host", ref).Want(t, 125).Says(t, "own programs", "try:")
	w.RemoveLayers(t)
}
