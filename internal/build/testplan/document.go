package testplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv"
)

//go:generate go test -run ^TestDocument$ . -update

// Document is the generated part of docs/testing.md: how many of the end-to-end tests run as whom, and which of them
// along which axis.
func (p Plan) Document() string {
	p.Now.All = true // the same for each commit
	var b strings.Builder
	fmt.Fprint(&b, "| user or machine | end-to-end tests |\n|---|---|\n")
	for _, k := range AllKinds {
		n := 0
		for _, t := range p.Tests {
			if t.EndToEnd() && p.Runs(t, k) {
				n++
			}
		}
		fmt.Fprintf(&b, "| %s | %d |\n", k, n)
	}
	fmt.Fprint(&b, "\n| axis | end-to-end tests | packages of which all tests have it |\n|---|---|---|\n")
	for _, a := range []testenv.Axis{testenv.User, testenv.Privilege, testenv.Kernel, testenv.Cgroup, testenv.EBPF} {
		var ends, packages []string
		for _, t := range p.Tests {
			switch {
			case !t.On(a):
			case t.EndToEnd():
				ends = append(ends, strings.TrimPrefix(t.Name, "Test"))
			default:
				packages = append(packages, t.Pkg)
			}
		}
		slices.Sort(ends)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", a, strings.Join(ends, " "), strings.Join(slices.Compact(packages), " "))
	}
	fmt.Fprint(&b, "\n| suite | tier | CPU seconds |\n|---|---|---|\n")
	for _, s := range p.Budget {
		fmt.Fprintf(&b, "| %s | %s | %d |\n", s.Name, s.Tier, s.CPU)
	}
	every, rotating := p.Budget.Cost()
	fmt.Fprintf(&b, "| a run of CI | | %d of tier every, %d of rotating |\n", every, rotating)
	return b.String()
}
