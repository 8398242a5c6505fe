package shelf

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	st, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestBoxes: a folder is here or there, and one daemon's; those with the mark are rescued.
func TestBoxes(t *testing.T) {
	home, st := t.TempDir(), open(t, filepath.Join(t.TempDir(), "shelf"))
	for _, id := range []string{"sb_a", "sb_b", "sb_c"} {
		if err := os.Mkdir(filepath.Join(home, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := Hold(filepath.Join(home, "sb_a"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(home, "sb_b", Mark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Put(filepath.Join(home, "sb_a"), "sb_a"), st.Rescue(home),
		st.Rescue(filepath.Join(home, "none"))); err != nil {
		t.Fatal(err)
	}
	if ids, err := st.Boxes(); err != nil || !slices.Equal(ids, []string{"sb_a", "sb_b"}) {
		t.Errorf("%v %v", ids, err)
	}
	if _, err := Hold(st.Box("sb_a")); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v", err)
	}
	if err := errors.Join(st.Take("sb_b", filepath.Join(home, "sb_b")), st.Remove("sb_a"),
		st.Remove("sb_a")); err != nil {
		t.Fatal(err)
	}
	if ids, _ := st.Boxes(); len(ids) > 0 {
		t.Errorf("%v", ids)
	}
}

// TestLayers: a layer stays while it is wanted or used, and what was left half done is swept.
func TestLayers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shelf")
	st := open(t, dir)
	for _, id := range []string{"ly_wanted", "ly_used", "ly_neither"} {
		n, err := st.NewLayer()
		if err == nil {
			err = n.Add(id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	used, err := st.Use([]string{"ly_used"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Use([]string{"ly_used", "ly_none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	collect := func(wanted map[string]bool, want ...string) {
		t.Helper()
		finish, err := st.Collect(wanted)
		if err == nil && finish != nil {
			err = finish()
		}
		left, _ := names(filepath.Join(dir, "layers"))
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("left %v, %v", left, err)
		}
	}
	collect(map[string]bool{"ly_wanted": true}, "ly_used", "ly_wanted")
	CloseAll(used)
	collect(nil)
	making, err := st.NewLayer()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if left, _ := names(filepath.Join(dir, "tmp")); !slices.Equal(left, []string{filepath.Base(making.Dir)}) {
		t.Errorf("left %v", left)
	}
	if err := making.Discard(); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshots: a record is there or not, and its name is no path.
func TestSnapshots(t *testing.T) {
	st := open(t, filepath.Join(t.TempDir(), "shelf"))
	if err := st.WriteSnapshot("sn_a", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if ids, err := st.Snapshots(); err != nil || !slices.Equal(ids, []string{"sn_a"}) {
		t.Errorf("%v %v", ids, err)
	}
	for _, id := range []string{"", "..", "../snapshots/sn_a", "sn_b", "sn_a\x00"} {
		if _, err := st.ReadSnapshot(id); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := st.RemoveSnapshot("sn_a"); err != nil {
		t.Fatal(err)
	}
}
