package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/internal/shelf"
)

// TestTidyShelved: what a start would make again goes from a folder that was moved to the shelf by somebody else, and
// what was in a file system of the sandbox's own is in its place, as often as it takes.
func TestTidyShelved(t *testing.T) {
	dir := t.TempDir()
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
		if err := tidyShelved(dir); err != nil {
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
