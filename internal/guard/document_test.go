package guard

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "renew SECURITY.md")

// TestDocument: SECURITY.md has the table of what is guarded.
func TestDocument(t *testing.T) {
	const name = "../../SECURITY.md"
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
	want := Document()
	if *update {
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s shows another table than the data: make generate", name)
	}
}
