package main

import (
	"bufio"
	_ "embed" // for the reasons
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed reasons.txt
var reasonsText string

// reason says why tests do not pass.
type reason struct {
	Why     string
	Left    bool // they are of what hutch leaves out by name
	pattern []*regexp.Regexp
}

type reasons []*reason

// readReasons reads a list of reasons, each a line "out: WHY" or "not: WHY" and below it, with a tab before each, the
// patterns of tests.
func readReasons(text string) (reasons, error) {
	var all reasons
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		kind, why, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t' && len(all) > 0:
			re, err := regexp.Compile(line[1:])
			if err != nil {
				return nil, fmt.Errorf("reasons, line %d: %w", n, err)
			}
			last := all[len(all)-1]
			last.pattern = append(last.pattern, re)
		case (kind == "out" || kind == "not") && why != "":
			all = append(all, &reason{Why: why, Left: kind == "out"})
		default:
			return nil, fmt.Errorf("reasons, line %d: neither a reason nor a pattern below one: %q", n, line)
		}
	}
	return all, lines.Err()
}

// of finds the reason for a test, by the name of its suite and its own.
func (rs reasons) of(suite, name string) *reason {
	for _, r := range rs {
		for _, p := range r.pattern {
			if p.MatchString(suite + " " + name) {
				return r
			}
		}
	}
	return nil
}

// test is a test that touches a server.
type test struct {
	Name   string
	Result result
	Reason *reason // why it does not pass, as far as it is known
}

// judge says of the tests that touch a server what became of them: those that fail where there is none.
func judge(suite string, mocked, served map[string]result, known reasons) []test {
	var tests []test
	for _, name := range slices.Sorted(maps.Keys(mocked)) {
		if mocked[name].Status != failed {
			continue
		}
		t := test{Name: name, Result: served[name]}
		if t.Result.Status == "" {
			t.Result = result{failed, "it was not run"}
		}
		if t.Result.Status != passed {
			t.Reason = known.of(suite, name)
		}
		tests = append(tests, t)
	}
	return tests
}
