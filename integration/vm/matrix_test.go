package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestFill: a machine gets the tests of the plan; whoever names some gets those in each machine that is named, but for
// tests of others.
func TestFill(t *testing.T) {
	plan := testplan.Plan{Tests: []testplan.Test{
		{Pkg: "integration/a", Name: "TestKernel", Axes: []testenv.Axis{testenv.Kernel}},
		{Pkg: "integration/a", Name: "TestPlain"},
		{Pkg: "integration/b", Name: "TestVMFull", Machines: []string{"delegation"}}, {Pkg: "images", Name: "TestPull"},
	}}
	for _, tt := range []struct {
		name, only string
		cases      []string
		want       string
	}{
		{"planned", "", []string{"6.1", "delegation", "quota"},
			"6.1: integration/a ^(TestKernel)$; delegation: integration/b ^(TestVMFull)$"},
		{"named", "Plain", []string{"6.1"}, "6.1: integration/a ^(TestPlain)$"},
		{"another machine's", "Full", []string{"6.1"}, ""},
		{"the whole suite", "", []string{"6.12-whole"}, "6.12-whole: integration/a ^(TestKernel|TestPlain)$"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cases, err := pick(tt.cases)
			if err != nil {
				t.Fatal(err)
			}
			var only *regexp.Regexp
			if tt.only != "" {
				only = regexp.MustCompile(tt.only)
			}
			var got []string
			for _, c := range fill(cases, plan, only, "") {
				for _, tests := range c.tests {
					got = append(got, c.name+": "+tests.pkg+" "+tests.run)
				}
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
