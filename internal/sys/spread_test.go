package sys

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSpread marks a folder on ext4, twice, nothing that is made in it, and leaves another file system's alone.
func TestSpread(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := Spread(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Spread("/proc"); err != nil {
		t.Errorf("/proc: %v", err)
	}
	if err := Spread(dir + "/none"); err == nil {
		t.Error("a folder that is not there")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.EXT4_SUPER_MAGIC {
		t.Skip("the temporary folder is not on ext4")
	}
	for at, want := range map[string]bool{dir: true, dir + "/sub": false} {
		f, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil || (flags&topDir != 0) != want {
			t.Errorf("%s: flags %x, %v; marked should be %v", at, flags, err, want)
		}
		_ = f.Close()
	}
}
