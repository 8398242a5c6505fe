package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// snapshot is what a folder holds, as "path mode content".
func snapshot(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel+" "+st.Mode().String()+" "+get(t, path))
		} else if path != dir && d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, rel+"/")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestPatch(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	apply := func(text string, dry bool) error {
		args := &filesapi.PatchArgs{Patch: text, Strip: -1, DryRun: dry, MaxFiles: 10, MaxSize: 1 << 20}
		_, data, err := op(t, c, filesapi.OpPatch, dir, args)
		if err != nil {
			return err
		}
		_, err = filesapi.ParsePatched(data, args)
		return err
	}
	put(t, dir+"/mod", "1\n2\n3\n")
	put(t, dir+"/del", "x\n")
	put(t, dir+"/ren", "y\n")
	if err := os.Chmod(dir+"/mod", 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mod", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	const good = "*** Update File: mod\n@@\n 1\n-2\n+two\n*** Delete File: del\n*** Add File: new/deep/file\n+hello\n*** Update File: ren\n*** Move to: new/ren\n@@\n-y\n+z\n"
	for _, bad := range []struct{ text, want string }{
		{"*** Add File: out/x\n+1\n", "out/x: leads out of the folder"},
		{"*** Add File: ../x\n+1\n", "leads out of the folder"},
		{"*** Add File: /etc/x\n+1\n", "leads out of the folder"},
		{"*** Update File: link\n@@\n-1\n+2\n", "is a symbolic link"},
		{"*** Update File: fifo\n@@\n-1\n+2\n", "is a fifo"},
		{"*** Delete File: out/hostname\n", "out/hostname: leads out of the folder"},
		{"*** Update File: none\n@@\n-1\n+2\n", "none: no such file"},
		{"*** Add File: link\n+1\n", "is there already"},
		{"*** Add File: fifo/x\n+1\n", "not a directory"},
	} {
		err := apply("*** Begin Patch\n"+good+bad.text+"*** End Patch\n", false)
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v", bad.text, err)
		}
		if after := snapshot(t, dir); !slices.Equal(after, before) {
			t.Fatalf("%q left %q", bad.text, after)
		}
	}
	whole := "*** Begin Patch\n" + good + "*** End Patch\n"
	if err := apply(whole, true); err != nil || !slices.Equal(snapshot(t, dir), before) {
		t.Errorf("dry run: %v, %q", err, snapshot(t, dir))
	}
	if err := apply(whole, false); err != nil {
		t.Fatal(err)
	}
	want := []string{"mod -rwxr-x--x 1\ntwo\n3\n", "new/", "new/deep/", "new/deep/file -rw-r--r-- hello\n", "new/ren -rw-r--r-- z\n"}
	if got := snapshot(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestPatchUndo: when a step fails, those before it are taken back.
func TestPatchUndo(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a", "1")
	put(t, dir+"/b", "2")
	before := snapshot(t, dir)
	top, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	p := &patcher{top: top, left: 100}
	defer p.close()
	var st unix.Stat_t
	if err := unix.Stat(dir+"/a", &st); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/tmp", "3")
	p.back = append(p.back, func() error { return unix.Unlinkat(top, "tmp", 0) })
	if err := p.swap(top, "tmp", "a", &st); err != nil {
		t.Fatal(err)
	}
	if err := p.takeAway(top, "b", &st); !errors.Is(err, nil) && !errors.Is(err, unix.ESTALE) {
		t.Fatal(err)
	}
	if _, err := p.folder("x/y", true); err != nil {
		t.Fatal(err)
	}
	if err := p.undo(); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, dir); !slices.Equal(after, before) {
		t.Errorf("%q", after)
	}
}
