package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPackNames: what is named travels with its time, of folders nothing else does; what is gone, or lies behind a
// link, is left out. Folders that are there get the archive's times only when that is asked for.
func TestPackNames(t *testing.T) {
	dir, to, secret := t.TempDir(), t.TempDir(), t.TempDir()
	when := time.Unix(1_500_000_000, 123456789)
	for _, d := range []string{dir + "/a/b", to + "/a"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dir + "/a/f", dir + "/a/b/not", secret + "/f"} {
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/f", "a/b", "a"} {
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	into, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	for _, folders := range []bool{false, true} {
		var buf bytes.Buffer
		stats, err := PackNames(t.Context(), &buf, int(top.Fd()), []string{"a", "a/b", "a/f", "a/f/none", "gone",
			"gone/x", "link", "link/f"})
		if err != nil || stats.Entries != 4 {
			t.Fatalf("%+v, %v", stats, err)
		}
		if _, err := Unpack(t.Context(), &buf, int(into.Fd()), Options{Folders: folders}); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"a": folders, "a/b": true, "a/f": true} {
			st, err := os.Stat(filepath.Join(to, name))
			if err != nil || st.ModTime().Equal(when) != want {
				t.Errorf("folders %v, %s: %v, %v", folders, name, st.ModTime(), err)
			}
		}
		for _, name := range []string{"a/b/not", "gone"} {
			if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
				t.Errorf("%s travelled", name)
			}
		}
		if target, err := os.Readlink(to + "/link"); target != secret {
			t.Errorf("%q, %v", target, err)
		}
	}
}
