package unpack

import (
	"archive/tar"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// marks are names of a tree with what counts of them here: "folder", "opaque", "hides" of a folder with whiteouts in
// it, "whiteout", the content of files.
func marks(t *testing.T, c *cage) map[string]string {
	m := make(map[string]string)
	for p, s := range snapshot(t, c.root) {
		switch {
		case p == "" && !strings.Contains(s, "overlay"):
			continue
		case strings.Contains(s, opaqueXattr):
			s = "opaque"
		case strings.Contains(s, originXattr):
			s = "hides"
		case strings.HasPrefix(s, "4"):
			s = "folder"
		case strings.HasPrefix(s, "20600 "):
			s = "whiteout"
		default:
			_, s, _ = strings.Cut(s, `"`)
			s, _, _ = strings.Cut(s, `"`)
		}
		m[strings.TrimPrefix(p, "/")] = s
	}
	return m
}

// TestWhiteouts unpacks layers in which whiteouts meet other entries, each in the order it is written in and, but for
// those that say otherwise, in the opposite one.
func TestWhiteouts(t *testing.T) {
	tests := []struct {
		name    string
		entries []any
		want    map[string]string
		hollow  string
		ordered bool
	}{
		{"beside a file", []any{dirE("q/"), fileE("q/.wh.none", ""), fileE("q/k", "k")},
			map[string]string{"q": "hides", "q/none": "whiteout", "q/k": "k"}, "", false},
		{"of a folder and of what is in it", []any{fileE(".wh.a", ""), fileE("a/.wh.f", "")},
			map[string]string{"a": "whiteout"}, "", false},
		{"of a folder and far below it", []any{fileE(".wh.a", ""), fileE("a/b/c/.wh.f", "")},
			map[string]string{"a": "whiteout"}, "", false},
		{"of folders in each other", []any{fileE("x/.wh.a", ""), fileE("x/a/.wh.b", ""), fileE("x/a/b/.wh.f", "")},
			map[string]string{"x": "hides", "x/a": "whiteout"}, "x", false},
		{"of a folder and an opaque mark in it", []any{fileE(".wh.a", ""), fileE("a/.wh..wh..opq", "")},
			map[string]string{"a": "whiteout"}, "", false},
		{"of a folder that is made anew", []any{fileE(".wh.a", ""), dirE("a/"), fileE("a/.wh.f", "")},
			map[string]string{"a": "opaque"}, "", false},
		{"of a folder with a file in it", []any{fileE(".wh.a", ""), fileE("a/n", "n"), fileE("a/.wh.f", "")},
			map[string]string{"a": "opaque", "a/n": "n"}, "", false},
		{"of a folder with a file below", []any{fileE(".wh.a", ""), fileE("a/b/n", "n"), fileE("a/.wh.f", "")},
			map[string]string{"a": "opaque", "a/b": "folder", "a/b/n": "n"}, "", false},
		{"beside its file", []any{fileE("f", "f"), fileE(".wh.f", "")}, map[string]string{"f": "f"}, "", false},
		{"below a file", []any{fileE("a", "a"), fileE("a/.wh.f", ""), fileE("a/b/.wh.f", ""),
			fileE("a/.wh..wh..opq", "")}, map[string]string{"a": "a"}, "", false},
		{"below a link that leads nowhere", []any{linkE("a", "/none"), fileE("a/.wh.f", "")},
			map[string]string{"a": ""}, "", false},
		{"only", []any{fileE("h/.wh.f", "")}, map[string]string{"h": "hides", "h/f": "whiteout"}, "h", false},
		{"only, below one with an entry", []any{dirE("h/"), fileE("h/i/.wh.f", "")},
			map[string]string{"h": "folder", "h/i": "hides", "h/i/f": "whiteout"}, "h/i", false},
		{"in an opaque folder", []any{fileE("o/.wh..wh..opq", ""), fileE("o/.wh.f", "")},
			map[string]string{"o": "opaque"}, "", false},
		{"with a folder that becomes a file", []any{fileE("a/.wh.f", ""), fileE("a", "a")}, map[string]string{"a": "a"},
			"", true},
		{"leftovers of AUFS", []any{
			fileE(".wh..wh.aufs", ""), dirE(".wh..wh.orph/"), fileE(".wh..wh.orph/x", ""), dirE(".wh..wh.plnk/"),
			fileE(".wh..wh.plnk/15.2", "linked"),
			fileE("d/.wh..wh.plnk/f", ""), dirE("b/"), hardE("b/one", ".wh..wh.plnk/15.2"),
			hardE("b/two", "/.wh..wh.plnk/15.2"),
		}, map[string]string{"b": "folder", "b/one": "linked", "b/two": "linked"}, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantMarks(t, tt.entries, tt.want, tt.hollow)
			if tt.ordered {
				return
			}
			backwards := slices.Clone(tt.entries)
			slices.Reverse(backwards)
			wantMarks(t, backwards, tt.want, tt.hollow)
		})
	}
}

func wantMarks(t *testing.T, entries []any, want map[string]string, hollow string) {
	t.Helper()
	c := newCage(t)
	stats, err := c.unpack(t, layer(t, entries...), Options{SingleUID: os.Geteuid() != 0})
	must(t, err)
	if got := marks(t, c); !maps.Equal(got, want) {
		t.Errorf("%s: made %v, want %v", entryNames(entries), got, want)
	}
	if got := strings.Join(stats.Hollow, " "); got != hollow {
		t.Errorf("%s: hollow are %q, want %q", entryNames(entries), got, hollow)
	}
}

func entryNames(entries []any) (all []string) {
	for _, e := range entries {
		switch e := e.(type) {
		case tar.Header:
			all = append(all, e.Name)
		case entry:
			all = append(all, e.Name)
		}
	}
	return all
}
