package testreport

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Report gathers the outcomes of every kind of user that ran.
type Report struct {
	kinds    []mustrun.Kind // in the order they ran
	outcomes map[mustrun.Kind][]Outcome
}

// Add notes how the tests ended for one kind of user.
func (r *Report) Add(k mustrun.Kind, outcomes []Outcome) {
	if r.outcomes == nil {
		r.outcomes = map[mustrun.Kind][]Outcome{}
	}
	if _, ok := r.outcomes[k]; !ok {
		r.kinds = append(r.kinds, k)
	}
	r.outcomes[k] = append(r.outcomes[k], outcomes...)
}

// Summary prints how many tests ended how, the failed ones, and for every reason
// the tests that it kept from running.
func (r *Report) Summary(out io.Writer) {
	for _, k := range r.kinds {
		count := map[string]int{}
		skipped := map[string][]string{}
		for _, o := range r.outcomes[k] {
			count[o.Action]++
			if o.Action == "skip" {
				skipped[o.Reason] = append(skipped[o.Reason], o.Name)
			}
		}
		fmt.Fprintf(out, "\nas %s: %d passed, %d failed, %d cannot run here\n", k, count["pass"], count["fail"], count["skip"])
		for _, o := range r.outcomes[k] {
			if o.Action == "fail" {
				fmt.Fprintf(out, "  FAIL %s\n", o.Name)
				for line := range strings.Lines(o.Reason) {
					fmt.Fprintf(out, "      %s\n", strings.TrimSuffix(line, "\n"))
				}
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(skipped)) {
			fmt.Fprintf(out, "  %s\n", reason)
			for _, name := range skipped[reason] {
				fmt.Fprintf(out, "      %s\n", name)
			}
		}
	}
}

// Unmet names the rules of list that no test satisfies, one line each with the
// reason: a must-run test that was skipped, or that nobody found. The first kind
// ran every package, the others only those that depend on the host: a rule for
// no kind in particular asks of them what they ran.
func (r *Report) Unmet(list mustrun.List) []string {
	var lines []string
	for _, rule := range list {
		for i, k := range r.kinds {
			if !rule.Holds(k) {
				continue
			}
			found, skips := matches(rule, r.outcomes[k])
			switch {
			case skips != nil:
				lines = append(lines, fmt.Sprintf("%s as %s: %s", rule.Tests, k, strings.Join(skips, "; ")))
			case !found && (i == 0 || rule.Kinds != nil):
				lines = append(lines, fmt.Sprintf("%s as %s: no such test ran", rule.Tests, k))
			}
		}
	}
	return lines
}

// matches reports whether outcomes hold a test of rule, and those that were
// skipped. Failed tests are reported elsewhere; here they count as having run.
func matches(rule mustrun.Rule, outcomes []Outcome) (found bool, skips []string) {
	for _, o := range outcomes {
		if !rule.Tests.MatchString(o.Name) {
			continue
		}
		found = true
		if o.Action == "skip" {
			skips = append(skips, o.Name+" was skipped: "+o.Reason)
		}
	}
	return found, skips
}
