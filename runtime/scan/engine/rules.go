package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ownRules are those that are about more than a name, in the order of the sources.
var ownRules []rule

// newRule makes a rule that Rules tells of.
func newRule(id string, c api.Category, s api.Severity, why string) rule {
	r := rule{id, c, s, why}
	ownRules = append(ownRules, r)
	return r
}

// Rules are all that a scan goes by.
func Rules() api.ScanRules {
	all := api.ScanRules{Harmless: map[string][]string{
		"python": slices.Sorted(maps.Keys(pySafe)), "javascript": slices.Sorted(maps.Keys(jsSafe)),
		"shell":                           slices.Sorted(maps.Keys(shPure)),
		"shell, below the working folder": slices.Sorted(maps.Keys(shReaders)),
	}}
	add := func(name string, r rule) {
		all.Rules = append(all.Rules, api.ScanRule{Rule: r.id, Category: r.category, Severity: r.severity, Name: name,
			Why: r.why})
	}
	for _, r := range ownRules {
		add("", r)
	}
	for _, members := range []map[string]rule{pyAttributes, jsMembers} {
		for name, r := range members {
			add("."+name, r)
		}
	}
	for _, t := range []*ruleTable{pyRules, jsRules, shRules} {
		for name, r := range t.exact {
			add(name, r)
		}
		for _, s := range t.starts {
			add(s.with+"*", s.rule)
		}
	}
	slices.SortStableFunc(all.Rules,
		func(a, b api.ScanRule) int { return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Name, b.Name)) })
	all.Rules = slices.Compact(all.Rules)
	return all
}

// ruleTable are rules by name; those whose name ends in * are for all that begin so.
type ruleTable struct {
	exact  map[string]rule
	starts []starting
}

type starting struct {
	with string
	rule rule
}

// rulesOf reads a table: name, rule, category, severity, why. A table is part of the program, so a mistake in it is one
// of ours.
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
