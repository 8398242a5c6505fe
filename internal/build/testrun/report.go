package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// report gathers the outcomes of every kind of user that ran.
type report struct {
	kinds    []mustrun.Kind // in the order they ran
	outcomes map[mustrun.Kind][]outcome
}

func (r *report) add(k mustrun.Kind, outcomes []outcome) {
	if r.outcomes == nil {
		r.outcomes = map[mustrun.Kind][]outcome{}
	}
	if _, ok := r.outcomes[k]; !ok {
		r.kinds = append(r.kinds, k)
	}
	r.outcomes[k] = append(r.outcomes[k], outcomes...)
}

// summary prints how many tests ended how, and for every reason the tests that
// it kept from running.
func (r *report) summary(out io.Writer) {
	for _, k := range r.kinds {
		count := map[string]int{}
		skipped := map[string][]string{}
		for _, o := range r.outcomes[k] {
			count[o.action]++
			if o.action == "skip" {
				skipped[o.reason] = append(skipped[o.reason], o.name)
			}
		}
		fmt.Fprintf(out, "\nas %s: %d passed, %d failed, %d cannot run here\n", k, count["pass"], count["fail"], count["skip"])
		for _, reason := range slices.Sorted(maps.Keys(skipped)) {
			fmt.Fprintf(out, "  %s\n", reason)
			for _, name := range skipped[reason] {
				fmt.Fprintf(out, "      %s\n", name)
			}
		}
	}
}

// unmet names the rules of list that no passed test satisfies, one line each
// with the reason: a must-run test that was skipped, or that nobody found.
func (r *report) unmet(list mustrun.List) []string {
	var lines []string
	for _, rule := range list {
		for _, k := range r.kinds {
			if !rule.Holds(k) {
				continue
			}
			if why := missed(rule, r.outcomes[k]); why != "" {
				lines = append(lines, fmt.Sprintf("%s as %s: %s", rule.Tests, k, why))
			}
		}
	}
	return lines
}

// missed says why outcomes do not satisfy rule, or nothing. Failed tests are
// reported elsewhere; here they count as having run.
func missed(rule mustrun.Rule, outcomes []outcome) string {
	var skips []string
	found := false
	for _, o := range outcomes {
		if !rule.Tests.MatchString(o.name) {
			continue
		}
		found = true
		if o.action == "skip" {
			skips = append(skips, o.name+" was skipped: "+o.reason)
		}
	}
	if !found {
		return "no such test ran"
	}
	return strings.Join(skips, "; ")
}
