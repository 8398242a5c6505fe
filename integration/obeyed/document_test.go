package obeyed_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/testenv"
)

//go:generate go test -run ^TestDocument$ . -update

var update = flag.Bool("update", false, "renew docs/guarded.md")

// document is the generated part of docs/guarded.md: with which program each name is proven.
func document() string {
	var rows strings.Builder
	proven := 0
	names := 0
	for _, r := range guard.Rows {
		if r.Words { // nothing runs
			continue
		}
		names++
		with := "documentation: " + r.Source
		var seen []string
		for _, p := range programs() {
			if !slices.Contains(p.rows, r.Name) {
				continue
			}
			text := p.seen
			if p.trust != nil {
				text += ", when told not to ask"
			}
			seen = append(seen, text)
		}
		if len(seen) > 0 {
			proven++
			with = strings.Join(slices.Compact(seen), "; ")
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", r.Name, r.Who, with)
	}
	return fmt.Sprintf("Of %d names %d are proven.\n\n| name | obeyed by | proven with |\n|---|---|---|\n",
		names, proven) + rows.String()
}

// TestDocument: docs/guarded.md says of each name that is guarded which program the tests run for it, and what these
// prove are names that are guarded.
func TestDocument(t *testing.T) {
	testenv.Generated(t, "../../docs/guarded.md", document(), *update)
	for _, p := range programs() {
		for _, row := range p.rows {
			if !slices.ContainsFunc(guard.Rows, func(r guard.Row) bool { return r.Name == row && !r.Report }) {
				t.Errorf("%s: %s is not guarded", p.name, row)
			}
		}
		for name := range p.made {
			if !slices.ContainsFunc(p.rows, func(row string) bool {
				return name == row ||
					strings.HasPrefix(name, row+"/")
			}) {
				t.Errorf("%s: %s is not at or below %q", p.name, name, p.rows)
			}
		}
	}
}
