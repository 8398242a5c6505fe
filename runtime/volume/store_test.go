package volume

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	st, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestStore: a volume is made once, found by its user only, kept while it is used, and then removed.
func TestStore(t *testing.T) {
	st := open(t, filepath.Join(t.TempDir(), "volumes"))
	if _, err := st.Use(1, "v", false); api.ErrorCode(err) != api.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	made, err := st.Create(1, "v")
	if err != nil || made.Name != "v" || made.Created.IsZero() {
		t.Fatalf("%+v %v", made, err)
	}
	if _, err := st.Create(1, "v"); api.ErrorCode(err) != api.AlreadyExists {
		t.Errorf("made twice: %v", err)
	}
	if info, err := os.Stat(st.Path(1, "v")); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("%v %v", info, err)
	}
	if list, err := st.List(2); err != nil || len(list) != 0 {
		t.Errorf("another user finds %+v %v", list, err)
	}
	if err := st.Remove(2, "v"); api.ErrorCode(err) != api.NotFound {
		t.Errorf("another user removes it: %v", err)
	}
	f, err := st.Use(1, "v", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(st.Path(1, "v"), "file"), make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	other := open(t, st.dir) // as another daemon
	if err := other.Remove(1, "v"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("in use: %v", err)
	}
	used, err := st.Usage(t.Context(), 1, "v")
	if err != nil || used.Bytes < 8192 || used.Inodes < 1 {
		t.Errorf("%+v %v", used, err)
	}
	f.Close()
	if err := other.Remove(1, "v"); err != nil {
		t.Error(err)
	}
	if err := st.Remove(1, "v"); api.ErrorCode(err) != api.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(st.dir, "*", "*")); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// TestNames: nothing but a name becomes a path.
func TestNames(t *testing.T) {
	st := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "a/b", "../a", "-a", ".a", "a\x00", "a b", strings.Repeat("a", 65)} {
		if _, err := st.Use(1, name, true); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("use %q: %v", name, err)
		}
		if err := st.Remove(1, name); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(st.dir); len(left) != 0 {
		t.Errorf("made %v", left)
	}
}

// TestSweep: what a killed removal has left goes with the next daemon, unless another is about it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"removed-a", "removed-b"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	busy, err := lock(filepath.Join(dir, "removed-b"), 2)
	if err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "removed-b" {
		t.Errorf("left %v %v", left, err)
	}
	busy.Close()
	if open(t, dir); exists(filepath.Join(dir, "removed-b")) {
		t.Error("not swept")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestRace: who uses a volume has the one that is there, whoever makes and removes it.
func TestRace(t *testing.T) {
	st := open(t, t.TempDir())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				f, err := st.Use(1, "v", true)
				if api.ErrorCode(err) == api.Unavailable {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if at, err := isAt(f, st.Path(1, "v")); !at {
					t.Errorf("a volume in use is not there: %v", err)
				}
				f.Close()
			}
		})
		wg.Go(func() {
			for range 200 {
				if err := st.Remove(1, "v"); err != nil && api.ErrorCode(err) != api.NotFound &&
					api.ErrorCode(err) != api.FailedPrecondition {
					t.Error(err)
					return
				}
				_ = open(t, st.dir)
			}
		})
	}
	wg.Wait()
}
