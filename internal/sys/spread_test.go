package sys

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpread: a folder of any file system can be asked for it, twice; a missing one is an error.
func TestSpread(t *testing.T) {
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, "spread")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		for range 2 {
			if err := Spread(dir); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		}
		sub := filepath.Join(dir, "sub")
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(sub)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil && flags&topDir != 0 {
			t.Errorf("%s: what is made in it is spread, too", dir)
		}
	}
	if err := Spread(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}
