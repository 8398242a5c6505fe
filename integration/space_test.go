package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestNoSpace: a full disk is told as such, leaves nothing, and is over when
// there is space again.
func TestNoSpace(t *testing.T) {
	testenv.Root(t)
	registry := imagetest.StartRegistry(t)
	big := imagetest.Image{Layers: []imagetest.Layer{imagetest.NewLayer(
		imagetest.Tar(imagetest.File{Name: "big", Content: strings.Repeat("x", 40<<20)}), imagetest.Gzip)}}
	ref := push(t, registry, "big", big)
	w := newWorld(t)
	w.configure(t, noneAhead)
	state := w.sub(t, "state")
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		testenv.Require(t, probe.Check{Name: "mount_tmpfs", Status: probe.No, Detail: err.Error()})
	}
	defer func() {
		w.shutdown()
		w.waitGone(time.Now().Add(patience))
		// Detached: what the kernel still takes down of the daemon may hold it for a
		// moment. That no process is left was seen above.
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	w.inside(t, "true")
	free := func() uint64 {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(state, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bfree
	}
	before := free()
	c := w.dial(t)

	// An image that does not fit.
	c.refused("resource_exhausted", "image.pull", params{"ref": ref})
	w.run(t, "run", ref, "true").want(t, 125).says(t, "no space left", "try:")
	if list := w.ok(t, "image", "ls", "-q"); list != "" {
		t.Errorf("visible: %q", list)
	}
	if tmp, _ := filepath.Glob(state + "/data/images/tmp/*"); len(tmp) > 0 {
		t.Errorf("left: %v", tmp)
	}

	// A sandbox that fills the disk gets ENOSPC, and its space comes back.
	w.run(t, "run", "host", "--", "sh", "-c", "cat /dev/zero >/var/tmp/fill").want(t, 1).says(t, "No space left")
	w.awaitNoSandbox(t)

	// No space for a sandbox at all.
	fill := filepath.Join(state, "fill")
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4096").Run() // ends with ENOSPC
	e := c.refused("resource_exhausted", "sandbox.create", params{"image": "host"})
	if !strings.Contains(e.Data.Hint, "HUTCH_ROOT") {
		t.Errorf("hint %q", e.Data.Hint)
	}
	w.run(t, "run", "host", "true").want(t, 125).says(t, "no space left", "try:")
	if dirs := w.sandboxFolders(); len(dirs) > 0 {
		t.Errorf("left: %v", dirs)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.inside(t, "true")
	c.close()
	w.awaitNoSandbox(t)
	if now := free(); now+32 < before { // the log may have grown
		t.Errorf("%d pages were free, now %d", before, now)
	}
}
