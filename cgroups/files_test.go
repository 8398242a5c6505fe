package cgroups

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var f files
	if _, err := f.read(dir, "events"); err == nil {
		t.Error("a file that is not there was read")
	}
	for _, text := range []string{"populated 1\n", "populated 0\n"} { // what it is now, each time
		put(text)
		if got, err := f.read(dir, "events"); err != nil || got != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if f.n != 1 {
		t.Errorf("%d files are open", f.n)
	}
	f.forgetOne(filepath.Dir(dir)) // another folder's
	if f.n != 1 {
		t.Errorf("%d files are open", f.n)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if _, err := f.read(dir, "events"); err != nil {
					t.Error(err)
				}
				f.forgetOne(dir)
			}
		})
	}
	all.Wait()
	f.forget(func(d string) bool { return d == dir })
	if f.n != 0 || len(f.open) != 0 {
		t.Errorf("%d files are open: %v", f.n, f.open)
	}
}

// TestFilesForgotten: what was opened before its folder was forgotten does not stay open after it.
func TestFilesForgotten(t *testing.T) {
	for name, forget := range map[string]func(*files){
		"one": func(f *files) { f.forgetOne("/a") },
		"all": func(f *files) { f.forget(func(dir string) bool { return dir == "/a" }) },
	} {
		var f files
		before := f.age
		forget(&f)
		if f.keep("/a", "events", 1<<20, before) || f.n != 0 || len(f.open) != 0 {
			t.Errorf("%s: a file of a forgotten folder is kept: %v", name, f.open)
		}
		if !f.keep("/a", "events", 1<<20, f.age) || f.n != 1 {
			t.Errorf("%s: a file of a new folder is not kept", name)
		}
	}
}
