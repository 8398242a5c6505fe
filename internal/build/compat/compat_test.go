package main

import (
	"strings"
	"testing"
	"time"
)

// TestParse: what became of each test is read from both kinds of report, the worst of what is said of one.
func TestParse(t *testing.T) {
	js, err := parseVitest([]byte(`{"testResults": [{"name": "/x/tests/a/b.test.ts", "assertionResults": [
		{"fullName": "good", "status": "passed"}, {"fullName": "bad", "status": "failed", "failureMessages": ["\nwhy\nmore"]},
		{"fullName": "none", "status": "pending"}]}]}`))
	check(t, js, err, map[string]result{"a/b.test.ts: good": {Status: passed}, "a/b.test.ts: bad": {failed, "why"},
		"a/b.test.ts: none": {Status: skipped}})
	js, err = parseVitest([]byte(`{"testResults": [{"name": "/tests/x", "message": "no such module"}]}`))
	check(t, js, err, map[string]result{"x: all of it": {failed, "no such module"}})
	py, err := parseJUnit([]byte(`<testsuites><testsuite>
		<testcase classname="tests.sync.test_a" name="good"/>
		<testcase classname="tests.sync.test_a" name="twice"/>
		<testcase classname="tests.sync.test_a" name="twice"><error message="torn down"/></testcase>
		<testcase classname="tests.sync.test_a" name="none"><skipped message="x"/></testcase></testsuite></testsuites>`))
	check(t, py, err, map[string]result{"sync/test_a.py: good": {Status: passed},
		"sync/test_a.py: twice": {failed, "torn down"}, "sync/test_a.py: none": {Status: skipped}})
}

func check(t *testing.T, got map[string]result, err error, want map[string]result) {
	t.Helper()
	if err != nil || len(got) != len(want) {
		t.Errorf("%v, %v", got, err)
	}
	for name, r := range want {
		if got[name] != r {
			t.Errorf("%s: %v, want %v", name, got[name], r)
		}
	}
}

// TestReport: a test counts where it fails without a server, and none of those is left out of the report.
func TestReport(t *testing.T) {
	known, err := readReasons("# why\nout: Volumes\n\t^x volume\nnot: The moon\n\tmoon\n")
	if err != nil {
		t.Fatal(err)
	}
	mocked := map[string]result{"a: mocked": {Status: passed}, "a: good": {Status: failed}, "a: moon": {Status: failed},
		"b: odd": {Status: failed}, "volume: v": {Status: failed}, "b: gone": {Status: failed}}
	served := map[string]result{"a: mocked": {Status: failed}, "a: good": {Status: passed}, "a: moon": {failed, "dark"},
		"b: odd": {failed, "a `b` | c"}, "volume: v": {failed, "none"}}
	r := report{Date: time.Unix(1.8e9, 0).UTC(), Commit: "0123", Suites: []outcome{{suite{Name: "x", Version: "1"},
		judge("x", mocked, served, known)}}}
	if c := r.Total(); c != (count{Passed: 1, Left: 1, Failed: 3, All: 5}) {
		t.Errorf("%+v", c)
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"**1 of the 5**", "on 2027-01-15, of commit 0123", "| x | 1 | 5 | 1 | 1 | 3 |",
		"| `a` | 2 | 1 | 0 | 1 |", "**Left out. Volumes** (1)", "**The moon** (1)", "- `x: b: odd`",
		"Not explained: `a 'b' \\| c`", "Not explained: `it was not run`"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if strings.Contains(b.String(), "a: mocked") || t.Failed() {
		t.Error(b.String())
	}
}

// TestReasons: the list that is kept can be read, and nonsense is refused by its line.
func TestReasons(t *testing.T) {
	known, err := readReasons(reasonsText)
	if err != nil || len(known) == 0 {
		t.Fatal(err)
	}
	for _, r := range known {
		if len(r.pattern) == 0 {
			t.Errorf("%s: no test has that reason", r.Why)
		}
	}
	for _, text := range []string{"\tx", "because: x\n", "out: \n", "not: x\n\t(\n"} {
		if _, err := readReasons(text); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
