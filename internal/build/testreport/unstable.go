package testreport

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxUnstable is how many unstable tests a run may have.
const maxUnstable = 3

// Late returns the top-level tests among outcomes, without their package, that failed for nothing but waits that ran
// out; all is false when something failed for another reason, or when nothing failed at all.
func Late(outcomes []Outcome) (late []string, all bool) {
	all = true
	final := map[string]bool{}
	for _, o := range outcomes {
		if o.Action != "fail" {
			continue
		}
		name := top(o.Name)
		final[name] = final[name] || !o.Late
	}
	for _, name := range slices.Sorted(maps.Keys(final)) {
		if final[name] {
			all = false
			continue
		}
		_, test, _ := strings.Cut(name, ".")
		late = append(late, test)
	}
	return late, all && len(final) > 0
}

// top is the name of the top-level test of a test: its subtests stand behind a slash. No folder has a dot in its name.
func top(name string) string {
	pkg, test, _ := strings.Cut(name, ".")
	test, _, _ = strings.Cut(test, "/")
	return pkg + "." + test
}

// MarkUnstable notes that a late test, name with its package, has passed thrice since; text is what those runs printed.
func MarkUnstable(outcomes []Outcome, name, text string) {
	for i, o := range outcomes {
		if o.Action == "fail" && top(o.Name) == name {
			outcomes[i].Action = "unstable"
			outcomes[i].Output += text
		}
	}
}

// Remembered prints the unstable tests with all that they printed, and reports whether the run may be green with them:
// there are at most three, and none was unstable before (memory, from names to what is known).
func (r *Report) Remembered(out io.Writer, memory map[string]string) bool {
	ok, n := true, 0
	for _, k := range r.kinds {
		for _, o := range r.outcomes[k] {
			if o.Action != "unstable" || o.Name != top(o.Name) {
				continue
			}
			n++
			fmt.Fprintf(out, "\nUNSTABLE %s as %s\n%s", o.Name, k, o.Output)
			if known, again := memory[o.Name]; again {
				ok = false
				fmt.Fprintf(out, "FAIL: %s is unstable again; .ci/unstable says: %s\n", o.Name, known)
			} else {
				fmt.Fprintf(out, "Find the race, in the product first. Until then add to .ci/unstable: %s DATE, WHAT IS KNOWN\n", o.Name)
			}
		}
	}
	if n > maxUnstable {
		ok = false
		fmt.Fprintf(out, "FAIL: %d unstable tests, at most %d are let pass\n", n, maxUnstable)
	}
	return ok
}
