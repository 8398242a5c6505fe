package changes

import (
	"strings"
	"testing"
)

// TestWithHunks takes some hunks of a change and leaves the others.
func TestWithHunks(t *testing.T) {
	lines := func(replaced ...string) string {
		list := strings.Split(strings.TrimSuffix(strings.Repeat("l\n", 40), "\n"), "\n")
		for i, r := range replaced {
			if r != "" {
				list[i*15] = r
			}
		}
		return strings.Join(list, "\n")
	}
	old, new := lines("a", "b", "c"), lines("A", "B", "C")
	for _, tt := range []struct {
		name  string
		hunks []int
		want  string
		fails string
	}{
		{"the first", []int{1}, lines("A", "b", "c"), ""},
		{"the last, which ends the file", []int{3}, lines("a", "b", "C"), ""},
		{"two, in any order", []int{3, 1, 3}, lines("A", "b", "C"), ""},
		{"all", []int{1, 2, 3}, new, ""},
		{"one that is not there", []int{4}, "", "it has no hunk 4: there are 3"},
		{"none", []int{0}, "", "it has no hunk 0"},
	} {
		got, err := withHunks(old, new, 3, tt.hunks)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: %v", tt.name, err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.name, err, got, tt.want)
		}
	}
	if _, err := withHunks("same", "same", 3, []int{1}); err == nil {
		t.Error("a hunk of no change")
	}
}

// FuzzWithHunks: all hunks are the whole change.
//
// Cost: each hunk is asked for, one call after the other, and each makes the diff anew; what a diff costs is
// FuzzPatch's and the library's, which gives up on what is too different.
func FuzzWithHunks(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nB\nc", 3)
	f.Add("", "x", 0)
	f.Add("x\n\n\ny", "\ny\n", 1)
	f.Fuzz(func(t *testing.T, old, new string, context int) {
		if old == new || len(old)+len(new) > 10_000 || strings.ContainsAny(old+new, "\r") {
			return
		}
		var all []int
		for n := 1; ; n++ {
			if _, err := withHunks(old, new, context&7, []int{n}); err != nil {
				if !strings.Contains(err.Error(), "it has no hunk") {
					t.Fatalf("hunk %d: %v", n, err)
				}
				break
			}
			all = append(all, n)
		}
		got, err := withHunks(old, new, context&7, all)
		if err != nil || got != new {
			t.Errorf("%v: %q, %v, want %q", all, got, err, new)
		}
	})
}
