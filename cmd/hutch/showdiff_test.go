package main

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/cli"
)

// TestDiffStat: lines are counted in hunks alone, and a file's name is that of the diff's first line.
func TestDiffStat(t *testing.T) {
	const diff = `diff --git a/a b b/a b
old mode 100644
new mode 100755
--- a/a b
+++ b/a b
@@ -1,2 +1,3 @@
-one
---- two
+++ three
+four
 five
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
\ No newline at end of file
diff --git a/old name b/new
rename from old name
rename to new
diff --git a/pic b/pic
new file mode 100644
Binary files /dev/null and b/pic differ
`
	var b strings.Builder
	if err := printDiffStat(&b, cli.Style{}, statsOf(diff), false); err != nil {
		t.Fatal(err)
	}
	want := []string{"a b | 4 ++-- mode 100755", "gone | 1 - deleted", "old name => new | 0", "pic | Bin new",
		"4 files changed, 2 lines added, 3 lines removed"}
	for i, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		if got := strings.Join(strings.Fields(line), " "); i >= len(want) || got != want[i] {
			t.Errorf("line %d: %q", i, got)
		}
	}
	for names, want := range map[string]string{"a/x b/x": "x", "a/x b/x b/x b/x": "x b/x",
		`"a/\303\251" "b/\303\251"`: `"a/\303\251" "b/\303\251"`, "a/old b/new": "new", "": ""} {
		if got := diffName(names); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
