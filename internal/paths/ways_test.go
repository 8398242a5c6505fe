package paths

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWay finds each link on the way to a file, and where it is.
func TestWay(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"home/config", "dotfiles/hutch", "store/x"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "store/x/config.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"home/config/hutch": "../../dotfiles/hutch", "dotfiles/hutch/config.yaml": filepath.Join(dir,
			"store/y/config.yaml"), "store/y": "x", "loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"home/config/hutch/config.yaml": "home/config/hutch dotfiles/hutch/config.yaml store/y store/x/config.yaml",
		"store/x/config.yaml":           "store/x/config.yaml",
		"store/none/config.yaml":        "store/none/config.yaml",
		"home/config/hutch/none":        "home/config/hutch dotfiles/hutch/none",
	} {
		var wanted []string
		for name := range strings.FieldsSeq(want) {
			wanted = append(wanted, filepath.Join(dir, name))
		}
		links, real := Way(filepath.Join(dir, path))
		if got := append(links, real); !slices.Equal(got, wanted) {
			t.Errorf("%s: %q, want %q", path, got, wanted)
		}
	}
	if links, _ := Way(filepath.Join(dir, "loop")); len(links) > maxLinks+1 {
		t.Errorf("a loop has %d links", len(links))
	}
}
