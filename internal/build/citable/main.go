// Citable prints what a run of CI took, as .ci/run does at its end: each step with its seconds and tests, the budget
// beside it, seconds per kind of user, and the slowest tests.
//
//	usage: citable FOLDER
//
// The folder holds a file "steps", a line each of NAME SECONDS CPU-SECONDS RESULT, and the reports of testrun and vm,
// NAME.json.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// slowest is how many tests are listed.
const slowest = 25

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: citable FOLDER")
		os.Exit(2)
	}
	root, err := testenv.ModuleRoot()
	if err == nil {
		err = table(os.Stdout, root, os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "citable:", err)
		os.Exit(1)
	}
}

// step is a line of the file "steps".
type step struct {
	name         string
	seconds, cpu float64
	result       string
	tests        int
}

func table(out io.Writer, root, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "steps"))
	if err != nil {
		return err
	}
	steps, err := parse(string(text))
	if err != nil {
		return err
	}
	budget, err := testplan.ReadBudget(root)
	if err != nil {
		return err
	}
	var kinds []testreport.SavedKind
	for i, s := range steps {
		saved, err := testreport.Load(filepath.Join(dir, s.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a step without tests
		} else if err != nil {
			return err
		}
		for _, k := range saved.Kinds {
			for _, t := range k.Tests {
				steps[i].tests += t.Count
			}
			if s.name == "test-race" {
				k.Kind += " (race)"
			}
			kinds = append(kinds, k)
		}
	}
	printSteps(out, steps, budget)
	printKinds(out, kinds)
	printSlowest(out, kinds)
	return nil
}

func parse(text string) ([]step, error) {
	var steps []step
	for line := range strings.Lines(text) {
		var s step
		if _, err := fmt.Sscan(line, &s.name, &s.seconds, &s.cpu, &s.result); err != nil {
			return nil, fmt.Errorf("%q: want NAME SECONDS CPU-SECONDS RESULT: %w", line, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func printSteps(out io.Writer, steps []step, budget testplan.Budget) {
	fmt.Fprintf(out, "\n%-12s %8s %8s %8s %7s\n", "step", "seconds", "CPU s", "budget", "tests")
	var sum step
	every, rotating := budget.Cost()
	for _, s := range steps {
		allowed, over := "", ""
		if b := budget.Suite(s.name); b != nil {
			most := b.CPU
			if s.name == "test-users" { // which runs the suites of tests, too
				most += rotating
				if slow := budget.Suite("slow"); slow != nil {
					most += slow.CPU
				}
			}
			allowed = fmt.Sprint(most)
			if s.cpu > float64(most) {
				over = "  over its budget"
			}
		}
		if s.result != "ok" {
			over += "  " + s.result
		}
		fmt.Fprintf(out, "%-12s %8.0f %8.0f %8s %7d%s\n", s.name, s.seconds, s.cpu, allowed, s.tests, over)
		sum.seconds, sum.cpu, sum.tests = sum.seconds+s.seconds, sum.cpu+s.cpu, sum.tests+s.tests
	}
	fmt.Fprintf(out, "%-12s %8.0f %8.0f %8d %7d\n", "all", sum.seconds, sum.cpu, every+rotating, sum.tests)
}

func printKinds(out io.Writer, kinds []testreport.SavedKind) {
	fmt.Fprintf(out, "\n%-20s %8s %8s %7s   (tests overlap)\n", "kind of user", "seconds", "CPU s", "tests")
	for _, k := range kinds {
		n := 0
		for _, t := range k.Tests {
			n += t.Count
		}
		fmt.Fprintf(out, "%-20s %8.0f %8.0f %7d\n", k.Kind, k.Wall().Seconds(), k.CPU, n)
	}
}

func printSlowest(out io.Writer, kinds []testreport.SavedKind) {
	type row struct {
		kind string
		testreport.SavedTest
	}
	var rows []row
	for _, k := range kinds {
		for _, t := range k.Tests {
			rows = append(rows, row{string(k.Kind), t})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.Seconds, a.Seconds) })
	fmt.Fprintf(out, "\nslowest tests\n")
	for _, r := range rows[:min(len(rows), slowest)] {
		fmt.Fprintf(out, "%8.1f s  %s as %s\n", r.Seconds, r.Name, r.kind)
	}
}
