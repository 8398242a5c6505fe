package testplan

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "renew docs/testing.md")

// TestDocument: docs/testing.md has the matrix that the tests declare.
func TestDocument(t *testing.T) {
	const name = "../../../docs/testing.md"
	const begin, end = "<!-- generated: make generate -->\n", "<!-- end -->\n"
	p := repository(t)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has not the lines %q and %q", name, begin, end)
	}
	want := p.Document()
	if *update {
		if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s shows another matrix than the tests declare: make generate", name)
	}
}
