package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// shellImage is a layer of a shell, and of a file that says which image it is.
func shellImage(t *testing.T, says string) imagetest.Image {
	t.Helper()
	files := []imagetest.File{imagetest.Dir("bin"), imagetest.Exec("bin/sh", staticShell(t)), imagetest.Symlink("bin/cat", "sh"), imagetest.Text("says", says)}
	return imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(imagetest.Tar(files...), imagetest.Gzip)}}
}

// awaitReady waits until so many sandboxes are launched ahead, which they are while none is created.
func (w *world) awaitReady(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(patience); decode[api.Info](t, w.ok(t, "rpc", "system.info")).Counts.Ready < n; <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %d sandboxes were launched ahead", n)
		}
	}
}

// memoryLimit is what the cgroup of a sandbox says, 0 where its record says that none holds it.
func (w *world) memoryLimit(t *testing.T, id string) int64 {
	t.Helper()
	sb := decode[api.Sandbox](t, w.ok(t, "rpc", "sandbox.get", `{"sandbox":"`+id+`"}`))
	if slices.ContainsFunc(sb.Unenforced, func(u api.Unenforced) bool { return u.Limit == "memory_bytes" }) {
		return 0
	}
	stats := decode[api.Stats](t, w.ok(t, "rpc", "sandbox.stats", `{"sandbox":"`+id+`"}`))
	if stats.Memory == nil || stats.Memory.LimitBytes == 0 {
		t.Fatalf("no limit of memory, which the record does not tell: %+v", stats.Memory)
	}
	return stats.Memory.LimitBytes
}

// TestDressed: a sandbox that was given its root ahead is nobody's, keeps no image from being removed, is not used when the image is
// another one meanwhile, and goes with the hutchd that made it.
func TestDressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := imagetest.StartRegistry(t)
	image := push(t, registry, "small", shellImage(t, "first"))
	says := func(m made, want string) {
		t.Helper()
		if got := w.ok(t, "exec", m.ID, "--", "cat", "/says"); strings.TrimSpace(got) != want {
			t.Errorf("the sandbox is of the image that says %q, want %q", got, want)
		}
		w.ok(t, "rm", "-f", m.ID)
	}
	create := func(args ...string) made {
		t.Helper()
		return decode[made](t, w.ok(t, append([]string{"create", "--json"}, args...)...))
	}
	says(w.makeAhead(t, 2, (*made).dressed, image), "first")

	t.Log("the image is removed and pulled again: its folders are others")
	w.awaitReady(t, 2)
	w.ok(t, "image", "rm", image)
	if m := create(image); m.dressed() {
		t.Error("it was given what was removed")
	} else {
		says(m, "first")
	}

	t.Log("the tag means another image")
	says(w.makeAhead(t, 2, (*made).dressed, image), "first")
	w.awaitReady(t, 2)
	push(t, registry, "small", shellImage(t, "second"))
	if m := create("--pull", "always", image); m.dressed() {
		t.Error("it was given what the tag meant before")
	} else {
		says(m, "second")
	}

	t.Log("another image")
	says(w.makeAhead(t, 2, (*made).dressed, image), "second")
	w.awaitReady(t, 2)
	if m := create("host"); m.dressed() || !m.claimed() {
		t.Errorf("dressed: %v, claimed: %v; want the one that was not dressed", m.dressed(), m.claimed())
	} else {
		w.ok(t, "rm", "-f", m.ID)
	}

	t.Log("other limits")
	m := w.makeAhead(t, 2, (*made).dressed, "--best-effort", "-m", "256m", image)
	limited := w.memoryLimit(t, m.ID)
	if w.ok(t, "rm", "-f", m.ID); limited != 0 && limited != 256<<20 {
		t.Errorf("the cgroup has a limit of %d bytes where it was dressed for 256 MiB", limited)
	}
	w.awaitReady(t, 2)
	m = create("--best-effort", "-m", "300m", image)
	if got := w.memoryLimit(t, m.ID); limited != 0 && (m.dressed() || got != 300<<20) {
		t.Errorf("dressed: %v, with a limit of %d bytes; want what was not dressed for 256 MiB, and 300", m.dressed(), got)
	}
	w.ok(t, "rm", "-f", m.ID)

	t.Log("death")
	kept := w.makeAhead(t, 2, (*made).dressed, image)
	w.awaitReady(t, 2)
	kill(t, w.daemon(t).hutchd)
	says(kept, "second")
	if list := w.ok(t, "ps", "-aq"); strings.TrimSpace(list) != "" {
		t.Errorf("sandboxes that nobody has asked for: %s", list)
	}
}
