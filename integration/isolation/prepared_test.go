package isolation_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// shellImage is a layer of a shell, and of a file that says which image it is.
func shellImage(t *testing.T, says string) imagetest.Image {
	t.Helper()
	files := []imagetest.File{imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t)),
		imagetest.Symlink("bin/cat", "sh"), imagetest.Text("says", says)}
	return imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)}}
}

// memoryLimit is what the cgroup of a sandbox says, 0 where its record says that none holds it.
func memoryLimit(t *testing.T, w *world.World, id string) int64 {
	t.Helper()
	sb := world.Decode[api.Sandbox](t, w.OK(t, "rpc", "sandbox.get", `{"sandbox":"`+id+`"}`))
	if slices.ContainsFunc(sb.Unenforced, func(u api.Unenforced) bool { return u.Limit == "memory_bytes" }) {
		return 0
	}
	stats := world.Decode[api.Stats](t, w.OK(t, "rpc", "sandbox.stats", `{"sandbox":"`+id+`"}`))
	if stats.Memory == nil || stats.Memory.LimitBytes == 0 {
		t.Fatalf("no limit of memory, which the record does not tell: %+v", stats.Memory)
	}
	return stats.Memory.LimitBytes
}

// TestPrepared: a sandbox that was given its root ahead is nobody's, keeps no image from being removed, is not used
// when the image is another one meanwhile, and goes with the hutchd that made it.
func TestPrepared(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	registry := imagetest.StartRegistry(t)
	image := world.Push(t, registry, "small", shellImage(t, "first"))
	says := func(m made, want string) {
		t.Helper()
		if got := w.OK(t, "exec", m.ID, "--", "cat", "/says"); strings.TrimSpace(got) != want {
			t.Errorf("the sandbox is of the image that says %q, want %q", got, want)
		}
		w.OK(t, "rm", "-f", m.ID)
	}
	create := func(args ...string) made {
		t.Helper()
		return world.Decode[made](t, w.OK(t, append([]string{"create", "--json"}, args...)...))
	}
	says(makeAhead(t, w, 2, (*made).prepared, image), "first")

	t.Log("the image is removed and pulled again: its folders are others")
	w.AwaitReady(t, 2)
	w.OK(t, "image", "rm", image)
	if m := create(image); m.prepared() {
		t.Error("it was given what was removed")
	} else {
		says(m, "first")
	}

	t.Log("the tag means another image")
	says(makeAhead(t, w, 2, (*made).prepared, image), "first")
	w.AwaitReady(t, 2)
	world.Push(t, registry, "small", shellImage(t, "second"))
	if m := create("--pull", "always", image); m.prepared() {
		t.Error("it was given what the tag meant before")
	} else {
		says(m, "second")
	}

	t.Log("another image")
	says(makeAhead(t, w, 2, (*made).prepared, image), "second")
	w.AwaitReady(t, 2)
	if m := create("host"); m.prepared() || !m.claimed() {
		t.Errorf("prepared: %v, claimed: %v; want the one that was not prepared", m.prepared(), m.claimed())
	} else {
		w.OK(t, "rm", "-f", m.ID)
	}

	t.Log("other limits")
	m := makeAhead(t, w, 2, (*made).prepared, "--best-effort", "-m", "256m", image)
	limited := memoryLimit(t, w, m.ID)
	if w.OK(t, "rm", "-f", m.ID); limited != 0 && limited != 256<<20 {
		t.Errorf("the cgroup has a limit of %d bytes where it was prepared for 256 MiB", limited)
	}
	w.AwaitReady(t, 2)
	m = create("--best-effort", "-m", "300m", image)
	if got := memoryLimit(t, w, m.ID); limited != 0 && (m.prepared() || got != 300<<20) {
		t.Errorf("prepared: %v, with a limit of %d bytes; want what was not prepared for 256 MiB, and 300",
			m.prepared(), got)
	}
	w.OK(t, "rm", "-f", m.ID)

	t.Log("death")
	kept := makeAhead(t, w, 2, (*made).prepared, image)
	w.AwaitReady(t, 2)
	world.Kill(t, w.Daemon(t).Hutchd)
	says(kept, "second")
	if list := w.OK(t, "ps", "-aq"); strings.TrimSpace(list) != "" {
		t.Errorf("sandboxes that nobody has asked for: %s", list)
	}
}
