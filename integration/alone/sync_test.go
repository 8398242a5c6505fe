package alone_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestFilesSyncMany: a tree of many pages, whose borders lie in folders, comes whole and with the times of its folders;
// later changes, on both sides and of any name, are found without the rest.
func TestFilesSyncMany(t *testing.T) {
	testenv.Suite(t, "many")
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // so that it is not the disk that takes the time
	}
	w := world.New(t)
	sb := w.Create(t, "-w", "/srv", "host")
	dir := w.Sub(t, "src")
	var makers errgroup.Group
	old := time.Unix(1_500_000_000, 123456789)
	for i := range 100 {
		sub := filepath.Join(dir, "flat") // 50,000 names in it, more than two pages
		if i%2 == 1 {
			sub = filepath.Join(dir, fmt.Sprintf("d%02d", i), "in\n\xff")
		}
		makers.Go(func() error {
			err := os.MkdirAll(sub, 0o755)
			for j := 0; j < 1000 && err == nil; j++ {
				if name := filepath.Join(sub, fmt.Sprintf("%02d-%03d", i, j)); j%5 == 0 {
					err = os.WriteFile(name, nil, 0o644)
				} else { // is made faster, and is a name as well
					err = os.Symlink("to", name)
				}
			}
			return err
		})
	}
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"flat", "d51/in\n\xff", "d51"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	w.FinishBusy(t, "cp", "--sync", "--delete", dir, sb+":many").Want(t, 0).
		Says(t, "0 the same, 100101 copied, 0 removed")
	world.SameTree(t, w, sb, dir, "many", true)

	world.Write(t, filepath.Join(dir, "flat/00-500"), "x")
	world.Write(t, filepath.Join(dir, "d99/in\n\xff/new\"<\u2028"), "y")
	if err := os.RemoveAll(filepath.Join(dir, "d51")); err != nil {
		t.Fatal(err)
	}
	w.OK(t, "exec", sb, "sh", "-euc",
		`cd many; rm flat/98-999; ln -s /etc flat/50-000x; mkdir -p zz/y; : >zz/y/z; rm -r d77; ln -s ../flat d77`)
	w.FinishBusy(t, "cp", "--sync", "--delete", dir, sb+":many").Want(t, 0).
		Says(t, "98095 the same, 1005 copied, 4 removed")
	world.SameTree(t, w, sb, dir, "many", false)
	w.OK(t, "exec", sb, "test", "-e", "/etc/passwd")
}
