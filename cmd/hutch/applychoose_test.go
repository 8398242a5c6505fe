package main

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestChoose answers questions about changes.
func TestChoose(t *testing.T) {
	list := []api.WorkspaceChange{
		{Path: ".git/hooks/x", Kind: "added", Type: "-", Guarded: ".git/hooks"},
		{Path: "gone", Kind: "deleted", Type: "d"},
		{Path: "main.go", Kind: "modified", Type: "-"},
		{Path: "new", Kind: "added", Type: "d"},
		{Path: "new/file", Kind: "added", Type: "-"},
		{Path: "swapped", Kind: "deleted", Type: "-"},
		{Path: "swapped", Kind: "added", Type: "d"},
		{Path: "theirs", Kind: "modified", Type: "-", Conflict: "it was changed"},
		{Path: "void", Kind: "added", Type: "d"},
	}
	three := "diff --git a/main.go b/main.go\n--- a/main.go\n+++ b/main.go\n@@ -1 +1 @@\n-a\n+A\n@@ -20 +20 @@\n-@@ b\n+B\n@@ -40 +40 @@\n-c\n+C\n"
	for _, tt := range []struct {
		name, answers string
		force         bool
		want          string
	}{
		{"none", "n n n n n n", false, "[] map[]"},
		{"all one by one", "y y y y y y", false, "[.git/hooks/x gone main.go new new/file swapped void] map[]"},
		{"all from the second", "n a", false, "[gone main.go new new/file swapped void] map[]"},
		{"what is guarded is not among all", "a", false, "[.git/hooks/x gone main.go new new/file swapped void] map[]"},
		{"by force", "n n n n n y n", true, "[theirs] map[]"},
		{"all, by force", "n a", true, "[gone main.go new new/file swapped void] map[]"},
		{"parts", "n n h y n y n n n", false, "[main.go] map[main.go:[1 3]]"},
		{"all parts", "n n h y y y n n n", false, "[main.go] map[]"},
		{"a part and the rest", "n n h n a q", false, "[main.go] map[main.go:[2 3]]"},
		{"a part and not the rest", "n n h y d y n n", false, "[main.go new new/file] map[main.go:[1]]"},
		{"no part", "n n h n d n n n", false, "[] map[]"},
		{"quit in a file", "n y h y q", false, "[gone main.go] map[main.go:[1]]"},
		{"quit", "n y q", false, "[gone] map[]"},
		{"the end of the input", "n y", false, "[gone] map[]"},
		{"what is no answer", "n n x ? h y n n q", false, "[main.go] map[main.go:[1]]"},
		{"no parts of what has none", "n h n n n n n n", false, "[] map[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			ch := &chooser{
				in: bufio.NewReader(strings.NewReader(strings.ReplaceAll(tt.answers, " ", "\n") + "\n")), out: &out,
				rows: 40, cols: 80, force: tt.force,
				chosen: map[string]bool{}, hunks: map[string][]int{},
				diff: func(p string) (string, error) {
					if p == "main.go" {
						return three, nil
					}
					return "diff --git a/" + p + " b/" + p + "\n+\x1b]0;x\a\n", nil
				},
			}
			if err := ch.choose(list); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(ch.paths(list), ch.hunks); got != tt.want {
				t.Errorf("got %s, want %s\n%s", got, tt.want, out.String())
			}
			if strings.ContainsRune(out.String(), '\x1b') {
				t.Errorf("what a terminal obeys is in %q", out.String())
			}
		})
	}
}
