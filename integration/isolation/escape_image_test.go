package isolation_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestEscapeImage: images whose files are made to mislead hutch. A sandbox of one
// either works with all of its walls, or is refused; the host is not touched.
func TestEscapeImage(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	w, ahead := world.New(t), world.New(t)
	ahead.Configure(t, "ready: 2\n")
	registry := imagetest.StartRegistry(t)
	shell := imagetest.NewLayer(imagetest.Tar(imagetest.Dir("bin"), imagetest.Exec("bin/sh", world.StaticShell(t))),
		imagetest.Gzip)
	ws := w.Sub(t, "ws")
	world.Write(t, filepath.Join(ws, "kept"), "kept\n")
	out := w.Sub(t, "out")
	// Inside: the walls that mounts make, then what the caller gave.
	const look = `[ "$(sed -n 's/^Seccomp:.//p' /proc/self/status)" = 2 ] && : >/dev/null && [ ! -e /proc/keys/x ] && cat /workspace/kept && echo hostname: $(cat /etc/hostname)`
	for _, c := range []struct {
		name   string
		files  []imagetest.File
		config imagetest.Config
		works  bool
	}{
		{"plain", nil, imagetest.Config{}, true},
		{"etc is a link out", []imagetest.File{imagetest.Symlink("etc", "../../../../../.."+out)},
			imagetest.Config{}, true},
		{"etc files are links out",
			[]imagetest.File{imagetest.Dir("etc"), imagetest.Symlink("etc/hostname", out+"/hostname"),
				imagetest.Symlink("etc/hosts", "/workspace/kept"), imagetest.Symlink("etc/passwd", "/dev/zero")},
			imagetest.Config{}, true},
		{"proc is a link", []imagetest.File{imagetest.Dir("etc"), imagetest.Symlink("proc", "etc")},
			imagetest.Config{}, true},
		{"proc is a file", []imagetest.File{imagetest.Text("proc", "")}, imagetest.Config{}, true},
		{"dev is a link", []imagetest.File{imagetest.Dir("etc"), imagetest.Symlink("dev", "etc")},
			imagetest.Config{}, true},
		{"dev is a link out", []imagetest.File{imagetest.Symlink("dev", "../../../../../.."+out)},
			imagetest.Config{}, true},
		{"dev is a link to proc", []imagetest.File{imagetest.Symlink("dev", "proc")}, imagetest.Config{}, true},
		{"dev is a file", []imagetest.File{imagetest.Text("dev", "")}, imagetest.Config{}, true},
		{"tmp is a link out", []imagetest.File{imagetest.Symlink("tmp", "../../../../../.."+out)},
			imagetest.Config{}, true},
		{"workspace is a link to etc", []imagetest.File{imagetest.Symlink("workspace", "/etc")},
			imagetest.Config{}, true},
		{"workspace is a link out", []imagetest.File{imagetest.Symlink("workspace", "../../../../../.."+out)},
			imagetest.Config{}, true},
		{"workspace is a link to proc", []imagetest.File{imagetest.Symlink("workspace", "/proc/1")},
			imagetest.Config{}, false},
		{"workspace is a file", []imagetest.File{imagetest.Text("workspace", "")}, imagetest.Config{}, false},
		{"sys is a link", []imagetest.File{imagetest.Symlink("sys", "proc")}, imagetest.Config{}, true},
		{"working folder is a link out", []imagetest.File{imagetest.Symlink("wd", "../../../../../.."+out)},
			imagetest.Config{WorkingDir: "/wd/made"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ref := world.Push(t, registry, "hostile", imagetest.Image{
				Layers: []imagetest.Layer{shell, imagetest.NewLayer(imagetest.Tar(c.files...), imagetest.Gzip)},
				Config: c.config,
			})
			// as of the second image, one that was launched ahead is claimed
			for _, w := range []*world.World{w, ahead} {
				r := w.Run(t, "run", "--pull", "always", "--hostname", "mine", "-v", ws+":/workspace", ref, "/bin/sh",
					"-c", look)
				if c.works {
					r.Want(t, 0)
				} else {
					r.Want(t, 125).Says(t, "try:")
				}
			}
			for dir, want := range map[string]int{out: 0, ws: 1} {
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
					t.Errorf("%s holds %v, %v", dir, entries, err)
				}
			}
		})
	}
	w.RemoveLayers(t)
}
