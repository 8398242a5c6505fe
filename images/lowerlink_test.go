package images

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	it "github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestLowerLinks: hard links to files of lower layers are made in a layer of their own, from what is seen where they
// stand.
func TestLowerLinks(t *testing.T) {
	registry := it.StartRegistry(t)
	type files = []it.File
	for name, tt := range map[string]struct {
		layers []files
		want   string // of the layer of links: files; "refused", or "" for none
	}{
		"plain": {[]files{{it.Text("f", "1")}, {it.Hardlink("g", "f")}}, "g=1"},
		"the nearest": {[]files{{it.Text("f", "1")}, {it.Text("f", "2")}, {it.Hardlink("g", "f")},
			{it.Text("f", "3")}}, "g=2"},
		"of a link": {[]files{{it.Text("f", "1")}, {it.Hardlink("g", "f")}, {it.Hardlink("h", "g")}},
			"g=1 h=1"},
		"in folders": {[]files{{it.Dir("a"), it.Text("a/f", "1")}, {it.Dir("b"), it.Hardlink("b/g", "a/f")}},
			"b/g=1"},
		"to a symlink": {[]files{{it.Symlink("f", "x")}, {it.Hardlink("g", "f")}}, "g->x"},
		"over a folder": {[]files{{it.Text("f", "1"), it.Dir("g"), it.File{Name: "g/t", Type: '5', Mode: 0o700}},
			{it.Text("g/t/x", "")}, {it.Hardlink("g", "f")}}, "g=1"},
		"under a link": {[]files{{it.Text("f", "1")}, {it.Dir("a"), it.Hardlink("a/b", "f")},
			{it.Hardlink("a", "f")}}, "a=1"},
		"deep under a link": {[]files{{it.Text("f", "1")}, {it.Dir("a"), it.Dir("a/b"), it.Hardlink("a/b/c", "f")},
			{it.Text("h", "2")}, {it.Hardlink("a", "f")}}, "a=1"},
		"beside a link": {[]files{{it.Text("f", "1")}, {it.Dir("a"), it.Hardlink("a/b", "f")},
			{it.Hardlink("ab", "f")}}, "a/b=1 ab=1"},
		"target under link": {[]files{{it.Text("f", "1"), it.Dir("a"), it.Text("a/b", "2")}, {it.Hardlink("a", "f")},
			{it.Hardlink("g", "a/b")}}, "refused"},
		"removed above":  {[]files{{it.Text("f", "1")}, {it.Hardlink("g", "f")}, {it.Whiteout(".", "g")}}, ""},
		"replaced above": {[]files{{it.Text("f", "1")}, {it.Hardlink("g", "f")}, {it.Text("g", "2")}}, ""},
		"opaque above":   {[]files{{it.Text("f", "1")}, {it.Hardlink("d/g", "f")}, {it.Opaque("d")}}, ""},
		"target removed": {[]files{{it.Text("f", "1")}, {it.Whiteout(".", "f")}, {it.Hardlink("g", "f")}},
			"refused"},
		"target hidden":    {[]files{{it.Text("d/f", "1")}, {it.Opaque("d")}, {it.Hardlink("g", "d/f")}}, "refused"},
		"target is above":  {[]files{{it.Text("x", "1")}, {it.Hardlink("g", "f")}, {it.Text("f", "1")}}, "refused"},
		"target is folder": {[]files{{it.Dir("f")}, {it.Hardlink("g", "f")}}, "refused"},
		"by way of a link": {[]files{{it.Dir("d"), it.Text("d/f", "1"), it.Symlink("l", "d")},
			{it.Hardlink("g", "l/f")}}, "refused"},
		"out of the layers": {[]files{{it.Symlink("l", "/etc")}, {it.Hardlink("g", "l/passwd")}}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var img it.Image
			for _, l := range tt.layers {
				img.Layers = append(img.Layers, it.NewLayer(it.Tar(l...), it.None))
			}
			s := openStore(t, Options{})
			got, err := s.Pull(t.Context(), push(t, registry, strings.ReplaceAll(name, " ", "-"), img), PullOptions{})
			if tt.want == "refused" {
				if api.ErrorCode(err) != api.InvalidArgument || !strings.Contains(err.Error(), "hard link") {
					t.Errorf("%v", err)
				}
				return
			}
			must(t, err)
			made := ""
			if len(got.Layers) > len(tt.layers) {
				made = listFiles(t, s.path(got.Layers[len(got.Layers)-1]))
			}
			if made != tt.want {
				t.Errorf("made %q, want %q", made, tt.want)
			}
		})
	}
}

// listFiles are the files and links of a tree.
func listFiles(t *testing.T, root string) string {
	t.Helper()
	var list []string
	must(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel := strings.TrimPrefix(p, root+"/")
		if to, err := os.Readlink(p); err == nil {
			list = append(list, rel+"->"+to)
			return nil
		}
		data, err := os.ReadFile(p)
		list = append(list, fmt.Sprintf("%s=%s", rel, data))
		return err
	}))
	return strings.Join(list, " ")
}
