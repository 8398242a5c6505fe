package files_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
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
	ref := world.Push(t, registry, "big", big)
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	state := w.Sub(t, "state")
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		testenv.Require(t, probe.Check{Name: "mount_tmpfs", Status: probe.No, Detail: err.Error()})
	}
	defer func() {
		w.Shutdown()
		w.WaitGone(time.Now().Add(world.Patience))
		// Detached: what the kernel still takes down of the daemon may hold it for a
		// moment. That no process is left was seen above.
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	w.Inside(t, "true")
	free := func() uint64 {
		t.Helper()
		var st unix.Statfs_t
		if err := unix.Statfs(state, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bfree
	}
	// The image host is made anew when the host has changed, such as by a user that another test adds; what it was
	// before stays until gc.
	w.OK(t, "gc")
	before := free()
	c := w.Dial(t)

	// An image that does not fit.
	c.Refused("resource_exhausted", "image.pull", world.Params{"ref": ref})
	w.Run(t, "run", ref, "true").Want(t, 125).Says(t, "no space left", "try:")
	if list := w.OK(t, "image", "ls", "-q"); list != "" {
		t.Errorf("visible: %q", list)
	}
	if tmp, _ := filepath.Glob(state + "/data/images/tmp/*"); len(tmp) > 0 {
		t.Errorf("left: %v", tmp)
	}

	// A sandbox that fills the disk gets ENOSPC, and its space comes back.
	w.Run(t, "run", "host", "--", "sh", "-c", "cat /dev/zero >/var/tmp/fill").Want(t, 1).Says(t, "No space left")
	w.AwaitNoSandbox(t)

	// No space for a sandbox at all.
	fill := filepath.Join(state, "fill")
	_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=4096").Run() // ends with ENOSPC
	e := c.Refused("resource_exhausted", "sandbox.create", world.Params{"image": "host"})
	if !strings.Contains(e.Data.Hint, "HUTCH_ROOT") {
		t.Errorf("hint %q", e.Data.Hint)
	}
	w.Run(t, "run", "host", "true").Want(t, 125).Says(t, "no space left", "try:")
	if dirs := w.SandboxFolders(); len(dirs) > 0 {
		t.Errorf("left: %v", dirs)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	w.Inside(t, "true")
	c.Close()
	w.AwaitNoSandbox(t)
	w.OK(t, "gc")
	if now := free(); now+32 < before { // the log may have grown
		t.Errorf("%d pages were free, now %d", before, now)
	}
}
