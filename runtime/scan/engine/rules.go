package engine

import (
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ruleTable are rules by name; those whose name ends in * are for all that begin so.
type ruleTable struct {
	exact  map[string]rule
	starts []starting
}

type starting struct {
	with string
	rule rule
}

// rulesOf reads a table: name, rule, category, severity, why. A table is part of the program, so a mistake in it is one of ours.
func rulesOf(language, text string) *ruleTable {
	t := &ruleTable{exact: map[string]rule{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 5 {
			panic("a rule without a reason: " + line)
		}
		r := rule{language + "." + f[1], api.Category(f[2]), api.Severity(f[3]), strings.Join(f[4:], " ")}
		if with, ok := strings.CutSuffix(f[0], "*"); ok {
			t.starts = append(t.starts, starting{with, r})
		} else {
			t.exact[f[0]] = r
		}
	}
	return t
}

// prefix is the rule with the longest beginning that name has.
func (t *ruleTable) prefix(name string) (best rule, ok bool) {
	longest := -1
	for _, s := range t.starts {
		if len(s.with) > longest && strings.HasPrefix(name, s.with) && !strings.Contains(name[len(s.with):], ".") {
			best, ok, longest = s.rule, true, len(s.with)
		}
	}
	return best, ok
}

// setOf are the words of a text.
func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}
