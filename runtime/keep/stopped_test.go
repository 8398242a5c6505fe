package keep

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// TestTidy: what a start would make again goes from a folder that was moved to the shelf by somebody else, and
// what was in a file system of the sandbox's own is in its place, as often as it takes.
func TestTidy(t *testing.T) {
	k, dir := newRig(t), t.TempDir()
	for _, sub := range []string{"fs/upper", "fs.copy/upper", "root", "pts", "run/x", "mnt/0", "about", "undo"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"record.json": "{}", "record.json.tmp": "", shelf.Mark: "", "names": "",
		"fs.copy/upper/file": "kept"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := k.Tidy(dir); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{"fs", shelf.Mark, "names", "record.json", "undo"}; !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "fs/upper/file")); string(text) != "kept" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// TestStartAgain: a folder from the shelf is made fit for another start whatever the sandbox has left in it; what is in
// a file system of its own is copied, there and back; the mark goes when the start has succeeded.
func TestStartAgain(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": "one", "dev": "a file"})
	r.write(b, "../work/work/volatile", "")
	if err := errors.Join(os.Mkdir(filepath.Join(b.dir, "fs/upper/sys"), 0o700),
		os.Symlink("/etc", filepath.Join(b.dir, "fs/upper/proc")), r.Pin("sb_a", b.root), r.CopyOwn(b.dir),
		r.CopyOwn(b.dir), r.Mark(b.dir), r.Shelve(b.dir, "sb_a")); err != nil {
		t.Fatal(err)
	}
	if pins, _ := r.images.Pins(); !slices.Equal(pins, []string{"box-sb_a"}) || b.read("file") != "" {
		t.Errorf("%v", pins)
	}
	if err := errors.Join(r.shelf.Take("sb_a", b.dir), r.SetAside(b.dir), r.FillOwn(b.dir),
		r.Renew(b.dir)); err != nil {
		t.Fatal(err)
	}
	// one that is there stays
	for name, mode := range map[string]os.FileMode{"proc": 0o755, "dev": 0o755, "sys": 0o700} {
		st, err := os.Lstat(filepath.Join(b.dir, "fs/upper", name))
		if err != nil || st.Mode() != os.ModeDir|mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if work, err := os.ReadDir(filepath.Join(b.dir, "fs/work")); err != nil || len(work) > 0 ||
		b.read("file") != "one" {
		t.Errorf("%v, %v, %q", work, err, b.read("file"))
	}
	if err := r.Begun(b.dir); err != nil || shelf.IsMarked(b.dir) {
		t.Error(err)
	}
	if err := r.Begun(b.dir); err == nil {
		t.Error("a start without a mark has begun")
	}
	if err := errors.Join(r.Mark(b.dir), r.Unmark(b.dir, "sb_a")); err != nil || shelf.IsMarked(b.dir) {
		t.Error(err)
	}
	r.bare()
	if entries, err := os.ReadDir(b.dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := r.Shelve(b.dir, "sb_a"); err != nil {
		t.Error(err)
	}
	if err := r.Remove("sb_a"); err != nil || len(r.names("boxes")) > 0 {
		t.Error(err)
	}
}

// TestPins: pins of what is not kept end, others stay; a shelf that goes with the daemon keeps none.
func TestPins(t *testing.T) {
	r := newRig(t)
	b := r.box("sb_a", map[string]string{"file": ""})
	sn := r.snapshot(b, "")
	for _, name := range []string{"box-sb_a", "box-sb_b", "snap-x", "other"} {
		if err := r.images.Pin(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.TidyPins(), r.Close()); err != nil {
		t.Error(err)
	}
	if pins, _ := r.images.Pins(); !slices.Equal(pins, []string{"box-sb_a", "other", "snap-" + sn.ID}) {
		t.Errorf("%v", pins)
	}
	if err := r.Pin("sb_h", &spec.Root{Ref: spec.HostImage}); err != nil || r.images.pins["box-sb_h"] {
		t.Errorf("the image of the machine is pinned: %v", err)
	}
	r.cfg.Dir = filepath.Dir(r.shelf.Dir())
	if err := errors.Join(r.TidyPins(), r.Close()); err != nil || r.images.pins["snap-"+sn.ID] ||
		!r.images.pins["box-sb_a"] {
		t.Errorf("%v, %v", r.images.pins, err)
	}
}
