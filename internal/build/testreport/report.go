package testreport

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Report gathers the outcomes of every kind of user that ran.
type Report struct {
	kinds    []mustrun.Kind // in the order they ran
	outcomes map[mustrun.Kind][]Outcome
	cpu      map[mustrun.Kind]time.Duration
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

// Spent adds CPU time that the tests of a kind of user took.
func (r *Report) Spent(k mustrun.Kind, cpu time.Duration) {
	if r.cpu == nil {
		r.cpu = map[mustrun.Kind]time.Duration{}
	}
	r.cpu[k] += cpu
}

// Each calls f for the outcome of each test, by kind of user and in the order in which they ended.
func (r *Report) Each(f func(mustrun.Kind, Outcome)) {
	for _, k := range r.kinds {
		for _, o := range r.outcomes[k] {
			f(k, o)
		}
	}
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
		unstable := ""
		if n := count["unstable"]; n > 0 {
			unstable = fmt.Sprintf(", %d unstable", n)
		}
		fmt.Fprintf(out, "\nas %s: %d passed, %d failed%s, %d cannot run here\n", k, count["pass"], count["fail"],
			unstable, count["skip"])
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

// Differ prints the tests that ended differently for different kinds of user, and reports whether there are none: an
// audit of the axes that tests declare.
func (r *Report) Differ(out io.Writer) bool {
	first := map[string]Outcome{}
	by := map[string]mustrun.Kind{}
	same := true
	for _, k := range r.kinds {
		for _, o := range r.outcomes[k] {
			before, seen := first[o.Name]
			if !seen {
				first[o.Name], by[o.Name] = o, k
				continue
			}
			if before.Action != o.Action {
				same = false
				fmt.Fprintf(out, "FAIL: %s: %s as %s, %s as %s: declare the axis (testenv.Axes), or find out why\n",
					o.Name, before.Action, by[o.Name], o.Action, k)
			}
		}
	}
	return same
}

// Unmet names the rules of list that no test satisfies, one line each with the
// reason: a must-run test that was skipped, or that nobody found. The first kind
// ran every package, the others only those that depend on the host: a rule for
// no kind in particular asks of them what they ran.
func (r *Report) Unmet(list mustrun.List) []string {
	var lines []string
	for _, rule := range list {
		if slices.Contains(rule.Kinds, mustrun.Once) {
			lines = append(lines, r.unmetOnce(rule)...)
			continue
		}
		ordinary := false // somebody ran what one of the ordinary users has to
		for i, k := range r.kinds {
			if !rule.Holds(k) {
				continue
			}
			found, skips := matches(rule, r.outcomes[k])
			ordinary = ordinary || found && k != mustrun.Root
			switch {
			case skips != nil:
				lines = append(lines, fmt.Sprintf("%s as %s: %s", rule.Tests, k, strings.Join(skips, "; ")))
			case !slices.Contains(rule.Kinds, k) && slices.Contains(rule.Kinds, mustrun.Ordinary): // below
			case !found && (i == 0 || rule.Kinds != nil):
				lines = append(lines, fmt.Sprintf("%s as %s: no such test ran", rule.Tests, k))
			}
		}
		if r.hosts() && slices.Contains(rule.Kinds, mustrun.Ordinary) && !ordinary {
			lines = append(lines, fmt.Sprintf("%s as %s: no such test ran", rule.Tests, mustrun.Ordinary))
		}
	}
	return lines
}

// hosts reports whether this is a run of all the host's users, and not of machines.
func (r *Report) hosts() bool {
	return slices.Contains(r.kinds, mustrun.SubUID) && slices.Contains(r.kinds, mustrun.NoSubUID)
}

// unmetOnce is Unmet for a rule that one of the host's users satisfies.
func (r *Report) unmetOnce(rule mustrun.Rule) []string {
	var lines []string
	found := false
	for _, k := range r.kinds {
		if strings.HasPrefix(string(k), mustrun.VM) {
			return nil // this report is of machines
		}
		ran, skips := matches(rule, r.outcomes[k])
		found = found || ran
		if skips != nil {
			lines = append(lines, fmt.Sprintf("%s as %s: %s", rule.Tests, k, strings.Join(skips, "; ")))
		}
	}
	if !found {
		lines = append(lines, fmt.Sprintf("%s: no such test ran", rule.Tests))
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
