package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestSwapJSON: a record that is written over another one is whole, whatever was there and however long that was, and
// no file is made or removed for it where there is one to write to.
func TestSwapJSON(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, recordFile)
	inode := func(name string) uint64 {
		t.Helper()
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Ino
	}
	holds := func(want string) {
		t.Helper()
		text, err := os.ReadFile(path)
		var got string
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != want {
			t.Errorf("the file holds %.40q, %v; want %.40q", text, err, want)
		}
	}
	// nothing to write to: a file beside it becomes it
	for _, text := range []string{"first", strings.Repeat("long", 3000), "short"} {
		if err := swapJSON(path, text); err != nil {
			t.Fatal(err)
		}
		holds(text)
	}
	s := &Sandbox{dir: dir}
	if err := s.makeSpare(); err != nil {
		t.Fatal(err)
	}
	a, b := inode(path), inode(path+spareSuffix)
	for _, text := range []string{"one", strings.Repeat("long", 3000), "", "two"} {
		if err := swapJSON(path, text); err != nil {
			t.Fatal(err)
		}
		holds(text)
		if got := [2]uint64{inode(path), inode(path + spareSuffix)}; got != [2]uint64{b, a} {
			t.Errorf("inodes %v, want the two that were there, exchanged: %v", got, [2]uint64{b, a})
		}
		a, b = b, a
	}
	if err := os.Remove(path); err != nil { // there is none to exchange with
		t.Fatal(err)
	}
	if err := swapJSON(path, "again"); err != nil {
		t.Fatal(err)
	}
	holds("again")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
