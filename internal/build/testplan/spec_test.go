package testplan

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9_*]*`)
	// otherwise is how a row says that something else than a named test enforces it: code that refuses, the tests of a
	// whole folder, the benchmark, or nothing yet.
	otherwise = regexp.MustCompile("pending|make bench|make lint|make test-|by hand|the same|[a-z/]+ tests|testdata|`[a-z/]+(\\.go)?`|\\.ci/run")
)

// TestSpecRows: each promise of SPEC.md has a test that runs in CI, and names none that does not.
func TestSpecRows(t *testing.T) {
	const root = "../../.."
	p := repository(t)
	p.Now.All = true // whatever is due with this commit
	text, err := os.ReadFile(root + "/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	var header []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		if header == nil {
			header = cells
			continue
		}
		column := slices.IndexFunc(header, func(c string) bool { return strings.TrimSpace(c) == "enforced by" })
		if column < 0 || column >= len(cells) || strings.HasPrefix(strings.TrimSpace(cells[0]), "---") {
			continue
		}
		rows++
		by := cells[column]
		names := testName.FindAllString(by, -1)
		if len(names) == 0 && !otherwise.MatchString(by) {
			t.Errorf("SPEC.md: %q names no test: %s", strings.TrimSpace(cells[0]), by)
		}
		for _, name := range names {
			if !p.runsSomewhere(name) {
				t.Errorf("SPEC.md: %q is enforced by %s, which no run of CI has", strings.TrimSpace(cells[0]), name)
			}
		}
	}
	if rows < 100 {
		t.Errorf("%d rows of SPEC.md are read: its form has changed", rows)
	}
}

// runsSomewhere reports whether a test that matches the name, in which a star stands for anything, runs as anybody in
// CI.
func (p Plan) runsSomewhere(name string) bool {
	return slices.ContainsFunc(p.Tests, func(t Test) bool {
		matched, err := path.Match(name, t.Name)
		return err == nil && matched && len(p.Kinds(t)) > 0
	})
}

// TestKindsOfMustRun: whoever .ci/must-run wants to run a test is given it.
func TestKindsOfMustRun(t *testing.T) {
	p := repository(t)
	p.Now.All = true
	for _, rule := range p.List {
		for _, k := range rule.Kinds {
			if k != mustrun.Once && !slices.ContainsFunc(p.Tests, func(test Test) bool {
				return rule.About(mustrun.Name(test.Pkg, test.Name)) && p.Runs(test, k)
			}) {
				t.Errorf("%s must run as %s, but no such test is given to it", rule.Tests, k)
			}
		}
	}
}
