package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// vmCase is one boot: a kernel, what guest/prep.sh makes of the machine, and tests.
type vmCase struct {
	name   string // of the report; prep.sh decides by it what to do
	kernel string
	// noSession runs the tests in a system service of the user's instead of a login
	// session.
	noSession bool
	// also are tests that the plan does not give to this machine, by their names.
	also []string
	// whole runs all end-to-end tests but those that are apart, not those of the plan.
	whole bool
	args  []string // of the compiled tests
	limit time.Duration
	tests []tests // filled in by plan
}

// tests are those of one compiled package.
type tests struct {
	pkg string
	run string // -test.run
	own bool   // of this machine alone: they may change it, so that they run last, one behind the other

	weight int // testplan.Weight
}

// kind is how the case is called where kinds of user are.
func (c vmCase) kind() mustrun.Kind {
	return mustrun.Kind(mustrun.VM + strings.TrimSuffix(c.name, whole))
}

// whole ends the name of the case that runs the whole suite.
const whole = "-whole"

// apart are tests that the whole suite does without: those in which the kernel does nothing that it
// does not do for others.
var apart = []string{
	"TestToolsMany", "TestScan", "TestScanHostile", "TestAgentLoop", "TestFilesSyncMany", "TestImport",
	"TestPullTogether",
	"TestPullHalf", "TestPushDeath", "TestImageUpkeep", "TestKilledPort", "TestKilledCommit", "TestKilledFork",
	"TestKilledSnapshot",
	"TestKilledRestore", "TestKilledStop", "TestModeCode", "TestModeCodeOff", "TestNetworkStreams",
}

// matrix is every machine. Which tests run where is computed from what they declare (internal/build/testplan): on other
// kernels those that depend on the kernel, on the one that most users have those that depend on cgroups, too, and in a
// machine of a kind of its own those that name it.
var matrix = []vmCase{
	{name: "delegation", kernel: "6.12", limit: 8 * time.Minute},
	{name: "none", kernel: "6.12", noSession: true, limit: 8 * time.Minute,
		also: []string{"TestVerdictsOfSandbox", "TestExecLimits"}},
	{name: "single", kernel: "6.12", limit: 8 * time.Minute, also: []string{"TestHostFiles", "TestMounts"}},
	{name: "quota", kernel: "6.12", limit: 10 * time.Minute},
	{name: "netd", kernel: "6.12", limit: 10 * time.Minute, args: short},
	{name: "netd-6.1", kernel: "6.1", limit: 10 * time.Minute, args: short},
	{name: "apparmor", kernel: "6.12", limit: 8 * time.Minute},
	{name: newest, kernel: newest, limit: 18 * time.Minute, args: short},
	{name: "6.1", kernel: "6.1", limit: 18 * time.Minute, args: short},
	{name: "6.12", kernel: "6.12", limit: 20 * time.Minute, args: short},
	{name: "6.12" + whole, kernel: "6.12", limit: 55 * time.Minute, whole: true, args: short},
}

// keepsBusy is how many processors a machine has, all of which it uses where tests run beside each other.
const keepsBusy = 2

// busy is how many processors the case keeps busy: one, where its few tests run one after the other.
func (c vmCase) busy() int64 {
	if len(c.args) == 0 {
		return 1
	}
	return keepsBusy
}

// short has fewer rounds of what repeats. Half of the tests' time is waiting, and two packages run at a time.
var short = []string{"-test.short", "-test.parallel=3"}

// fill gives each case its tests: of those of the plan that match only, if it is given. Cases without a test are left
// out.
func fill(cases []vmCase, plan testplan.Plan, only *regexp.Regexp, rest string) []vmCase {
	var filled []vmCase
	for _, c := range cases {
		for _, own := range []bool{false, true} {
			for _, pkg := range plan.Packages() {
				if of := c.of(plan, pkg, own, only); len(of) > 0 {
					c.tests = append(c.tests, tests{
						pkg: pkg, run: testplan.Pattern(testplan.Names(of), rest), own: own,
						weight: testplan.Weight(of),
					})
				}
			}
		}
		// The longest first, so that no other waits for it alone.
		shared := slices.DeleteFunc(slices.Clone(c.tests), func(t tests) bool { return t.own })
		slices.SortStableFunc(shared, func(a, b tests) int { return cmp.Compare(b.weight, a.weight) })
		copy(c.tests, shared)
		if len(c.tests) > 0 {
			filled = append(filled, c)
		}
	}
	return filled
}

// of are the end-to-end tests of a package that run in the case: its own, or those that run elsewhere, too.
func (c vmCase) of(plan testplan.Plan, pkg string, own bool, only *regexp.Regexp) []testplan.Test {
	var of []testplan.Test
	for _, t := range plan.Tests {
		if t.Pkg == pkg && t.EndToEnd() && (len(t.Machines) > 0) == own && c.runs(t, plan, only) {
			of = append(of, t)
		}
	}
	return of
}

// runs reports whether a test runs in the case. Those who name tests by only get them in whatever machine they name,
// but for those of other machines.
func (c vmCase) runs(t testplan.Test, plan testplan.Plan, only *regexp.Regexp) bool {
	switch {
	case only != nil && !only.MatchString(t.Name):
		return false
	case only != nil && !plan.Audit, c.whole && !slices.Contains(apart, t.Name):
		return len(t.Machines) == 0 || slices.Contains(t.Machines, strings.TrimSuffix(c.name, whole))
	case c.whole:
		return false
	}
	return plan.Runs(t, c.kind()) || slices.Contains(c.also, t.Name) && plan.Repeats(t, c.kind())
}

// packages are the folders of the tests of some cases.
func packages(cases []vmCase) []string {
	var all []string
	for _, c := range cases {
		for _, t := range c.tests {
			all = append(all, t.pkg)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pick returns the cases with these names; without names all but the whole suite.
func pick(names []string) ([]vmCase, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(matrix), func(c vmCase) bool { return c.whole }), nil
	}
	var cases []vmCase
	for _, name := range names {
		at := slices.IndexFunc(matrix, func(c vmCase) bool { return c.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no case %q", name)
		}
		cases = append(cases, matrix[at])
	}
	return cases, nil
}

// script is the part of guest/run.sh that the case decides.
func (c vmCase) script() string {
	var b strings.Builder
	// One package alone is shown as it goes on.
	alone := !slices.ContainsFunc(c.tests[1:], func(t tests) bool { return !t.own })
	// What ends by itself says where it was.
	args := append(slices.Clone(c.args), fmt.Sprintf("-test.timeout=%v", c.limit-time.Minute))
	for _, t := range c.tests {
		args := append(slices.Clone(args), "-test.run="+t.run)
		verb := "beside"
		if t.own || alone {
			verb = "wait; run"
		}
		fmt.Fprintf(&b, "%s %s", verb, t.pkg)
		for _, arg := range args {
			fmt.Fprintf(&b, " '%s'", strings.ReplaceAll(arg, "'", `'\''`))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// commandLine is the case's part of the kernel's.
func (c vmCase) commandLine() string {
	target := "vmtest.target"
	if c.noSession {
		target = "vmtest-nosession.target"
	}
	return "systemd.unit=" + target + " vmtest.case=" + c.name
}
