package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestCopyInRace: whoever can write to a folder that is copied into a sandbox, as another sandbox that has it as its
// workspace, cannot make the copy take a file from elsewhere, or its name, by putting links into the places of files
// and folders meanwhile.
func TestCopyInRace(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	c := w.Connect(t)
	dir, out := w.Sub(t, "shared"), w.Sub(t, "private")
	world.Write(t, filepath.Join(out, "secret-name"), "secret\n")
	world.Write(t, filepath.Join(out, "f"), "secret\n")
	world.Write(t, filepath.Join(dir, "file"), "mine\n")
	for name, target := range map[string]string{"file-link": filepath.Join(out, "f"), "sub-link": out} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	world.Write(t, filepath.Join(w.Sub(t, "shared/sub"), "f"), "mine\n")

	for _, tt := range []struct {
		name string
		swap string
		args []string
		look string
	}{
		{"file", "file", []string{"cp", filepath.Join(dir, "file"), sb + ":/tmp/x"},
			"if test -L /tmp/x; then echo link; else cat /tmp/x; fi"},
		{"folder", "sub", []string{"cp", filepath.Join(dir, "sub"), sb + ":/tmp/x"},
			"if test -L /tmp/x; then echo link; else cat /tmp/x/*; ls /tmp/x; fi"},
		{"sync", "sub", []string{"cp", "--sync", dir, sb + ":/tmp/x"},
			"find /tmp/x; find /tmp/x -type f -exec cat {} +"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := filepath.Join(dir, tt.swap), filepath.Join(dir, tt.swap+"-link")
			stop := make(chan struct{})
			var swaps sync.WaitGroup
			swaps.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
						t.Error(err)
						return
					}
				}
			})
			copied, links := 0, 0
			for range 40 {
				// A folder that has become a link while it was copied is refused; a single file never fails.
				if r := w.Run(t, tt.args...); r.Code != 0 && (tt.name == "file" || r.Code != 125) {
					t.Errorf("%+v", r)
				}
				got := world.Ran(t, c, sb, tt.look+"; rm -rf /tmp/x").Stdout
				if strings.Contains(got, "secret") {
					t.Fatalf("what is elsewhere was copied:\n%s", got)
				}
				if strings.Contains(got, "mine") {
					copied++
				} else {
					links++
				}
			}
			close(stop)
			swaps.Wait()
			t.Logf("%d copies of the file, %d of the link", copied, links)
		})
	}
	w.OK(t, "rm", "-f", sb)
}
