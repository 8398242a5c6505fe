package files

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// walked is what a folder holds, as a caller lists it.
func walked(t *testing.T, root string) (list []filesapi.SyncFile) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		e, err := describe(unix.AT_FDCWD, path, false)
		if err == nil {
			list = append(list, filesapi.SyncFile{Path: []byte(rel), Mode: e.Mode, Size: e.Size, MTime: e.MTime,
				Target: e.Target})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// syncAll sends pages of so many files, and what each of them said in names.
func syncAll(t *testing.T, c *filesapi.Client, dir string, list []filesapi.SyncFile, size int,
	del bool) (needed []string, same, removed int) {
	t.Helper()
	var after []byte
	for more := true; more; {
		n := min(size, len(list))
		more = n < len(list)
		args := &filesapi.SyncArgs{After: after, More: more, Files: list[:n], Delete: del}
		_, data, err := op(t, c, filesapi.OpSync, dir, args)
		if err != nil {
			t.Fatal(err)
		}
		r, err := filesapi.ParseSynced(data, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range r.Needed {
			needed = append(needed, string(list[i].Path))
		}
		if same, removed, list = same+r.Same, removed+r.Removed, list[n:]; more {
			after = args.Files[n-1].Path
		}
	}
	return needed, same, removed
}

var syncNames = []string{"a", "a.b", "a-", "b", "\xff", " ", "c\nd", "é", "zz", ".hidden"}

// grow fills a folder at random: a file, a link or a folder behind each name.
func grow(t *testing.T, dir string, depth int, seed *rand.Rand) {
	t.Helper()
	for _, name := range syncNames {
		path := filepath.Join(dir, name)
		var err error
		switch kind := seed.IntN(5); {
		case kind == 0 && depth < 3:
			if err = os.Mkdir(path, 0o755); err == nil {
				grow(t, path, depth+1, seed)
			}
		case kind == 1:
			err = os.Symlink([]string{"/etc", "..", "a"}[seed.IntN(3)], path)
		case kind == 2:
			put(t, path, strings.Repeat("x", seed.IntN(2)))
			err = os.Chtimes(path, time.Time{}, time.Unix(1e9+int64(seed.IntN(2)), 5))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSyncPages: whatever is on either side and wherever pages end, all pages together find what one finds, and a
// folder from which what is needed is taken is then what the caller has.
func TestSyncPages(t *testing.T) {
	c := newClient(t)
	for round := range 25 {
		seed := rand.New(rand.NewPCG(1, uint64(round)))
		ours := t.TempDir()
		grow(t, ours, 0, seed)
		list := walked(t, ours)
		if len(list) == 0 {
			continue
		}
		var want string
		for _, size := range []int{len(list), 1, 2, 3, 7} {
			theirs := t.TempDir()
			grow(t, theirs, 0, rand.New(rand.NewPCG(2, uint64(round))))
			needed, same, removed := syncAll(t, c, theirs, list, size, true)
			if got := fmt.Sprintf("%q, %d, %d", needed, same, removed); want == "" {
				want = got
			} else if got != want {
				t.Fatalf("round %d, pages of %d: %s, one page: %s", round, size, got, want)
			}
			// What is left is the caller's, but for what is needed.
			left := map[string]bool{}
			for _, f := range walked(t, theirs) {
				left[string(f.Path)] = true
			}
			for _, f := range list {
				if !slices.Contains(needed, string(f.Path)) && !left[string(f.Path)] {
					t.Fatalf("round %d, pages of %d: %q is neither there nor needed", round, size, f.Path)
				}
				delete(left, string(f.Path))
			}
			if len(left) > 0 {
				t.Fatalf("round %d, pages of %d: too much is left: %v", round, size, left)
			}
			if len(needed)+same != len(list) {
				t.Fatalf("round %d, pages of %d: %d needed and %d the same of %d", round, size, len(needed), same,
					len(list))
			}
		}
	}
}

// TestSyncRange: a page removes what lies in its range and nothing else, also inside of folders, and never by way of a
// link.
func TestSyncRange(t *testing.T) {
	c, dir, out := newClient(t), t.TempDir(), t.TempDir()
	put(t, out+"/kept", "x")
	file := func(p string) filesapi.SyncFile {
		return filesapi.SyncFile{Path: []byte(p), Mode: unix.S_IFREG, Size: 1}
	}
	folder := func(p string) filesapi.SyncFile { return filesapi.SyncFile{Path: []byte(p), Mode: unix.S_IFDIR} }
	fill := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"a/b/1", "a/b/2", "a/b/3", "a/c", "a.x", "d/e/f", "g"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, p), "x")
		}
		if err := os.Symlink(out, dir+"/link"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args filesapi.SyncArgs
		left string
	}{
		{filesapi.SyncArgs{After: []byte("a/b/1"), More: true, Files: []filesapi.SyncFile{file("a/b/3")}},
			"a/b/1 a/b/3 a/c a.x d/e/f g link"},
		{filesapi.SyncArgs{After: []byte("a/b/1"), More: true, Files: []filesapi.SyncFile{file("a/b/15")}},
			"a/b/1 a/b/2 a/b/3 a/c a.x d/e/f g link"},
		{filesapi.SyncArgs{After: []byte("a/b"), More: true, Files: []filesapi.SyncFile{file("a/b/3")}},
			"a/b/3 a/c a.x d/e/f g link"},
		{filesapi.SyncArgs{More: true, Files: []filesapi.SyncFile{folder("a"), folder("a/b")}},
			"a/b/1 a/b/2 a/b/3 a/c a.x d/e/f g link"},
		{filesapi.SyncArgs{After: []byte("a/b/3"), More: true, Files: []filesapi.SyncFile{file("b")}},
			"a/b/1 a/b/2 a/b/3 d/e/f g link"},
		{filesapi.SyncArgs{After: []byte("d")}, "a/b/1 a/b/2 a/b/3 a/c a.x"},
		{filesapi.SyncArgs{After: []byte("link/x")}, "a/b/1 a/b/2 a/b/3 a/c a.x d/e/f g link"},
		{filesapi.SyncArgs{After: []byte("g/x"), More: true, Files: []filesapi.SyncFile{file("g/y"), folder("link")}},
			"a/b/1 a/b/2 a/b/3 a/c a.x d/e/f g"},
	} {
		fill()
		tt.args.Delete = true
		if _, _, err := op(t, c, filesapi.OpSync, dir, &tt.args); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, f := range walked(t, dir) {
			if f.Mode&unix.S_IFMT != unix.S_IFDIR {
				left = append(left, string(f.Path))
			}
		}
		if got := strings.Join(left, " "); got != tt.left {
			t.Errorf("%+v left %s, want %s", tt.args, got, tt.left)
		}
	}
	if get(t, out+"/kept") != "x" {
		t.Error("followed")
	}
}

// TestFirstNames: of a folder with more names than are held at once the first ones come first, and all of them.
func TestFirstNames(t *testing.T) {
	dir := t.TempDir()
	const n = 500
	for i := range n {
		put(t, fmt.Sprintf("%s/%03d", dir, (i*7)%n), "")
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, most := range []int{1, 7, n - 1, n, n + 1} {
		var all []string
		for last, more := "", true; more; last = all[len(all)-1] {
			var names []string
			if names, more, err = firstNames(f, most, func(name string) bool { return name > last }); err != nil ||
				len(names) > most || len(names) == 0 {
				t.Fatalf("%d names, %v", len(names), err)
			}
			all = append(all, names...)
		}
		if len(all) != n || !slices.IsSorted(all) {
			t.Errorf("%d at once: %d names", most, len(all))
		}
	}
}
