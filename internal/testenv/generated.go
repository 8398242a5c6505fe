package testenv

import (
	"os"
	"strings"
	"testing"
)

// Generated compares the generated part of a document with what it should be, and renews it instead when update is set.
// The part stands between two lines: an HTML comment that says that it is generated, and one that ends it.
func Generated(t *testing.T, name, want string, update bool) {
	t.Helper()
	const begin, end = "<!-- generated: make generate -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has not the lines %q and %q", name, begin, end)
	}
	if update {
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("the generated part of %s is old: make generate", name)
	}
}
