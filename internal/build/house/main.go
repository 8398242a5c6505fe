// House prints what the tree looks like against its own limits: the size of packages, types and functions, the width of
// lines, and words that are not the field's. `make house` runs it; with -check it fails where a limit that holds
// already is exceeded, which `make lint` does.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// The limits: of lines without tests in a package, of methods of a type, exported and in all, and of columns.
const (
	maxPackage  = 6000
	maxExported = 40
	maxMethods  = 60
	maxColumns  = 120
)

// longest is how many functions are listed.
const longest = 10

func main() {
	check := flag.Bool("check", false, "fail on words and widths that are new; print nothing else")
	verbose := flag.Bool("v", false, "list each word and each wide line with its place")
	flag.Parse()
	t, err := read()
	if err == nil && *check {
		err = t.check()
	} else if err == nil {
		t.print(os.Stdout, *verbose)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tree is what was read of all files that git knows.
type tree struct {
	packages map[string]*size
	types    map[string]*methods
	funcs    []function
	prose    []finding // words, wide lines
}

type size struct{ code, tests int }

type methods struct{ exported, all int }

type function struct {
	name, file string
	lines      int
}

// finding is one place that a rule is about.
type finding struct {
	rule, file string
	line       int
	text       string
}

func read() (*tree, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(root); err != nil {
		return nil, err
	}
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files: %w", err)
	}
	t := &tree{packages: map[string]*size{}, types: map[string]*methods{}}
	for file := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if err := t.add(file); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(t.funcs, func(a, b function) int { return b.lines - a.lines })
	return t, nil
}

// check fails on what is worse than the limits.
func (t *tree) check() error {
	var bad []string
	for _, f := range t.prose {
		bad = append(bad, fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.rule, f.text))
	}
	if len(bad) > 0 {
		return fmt.Errorf("%s\n%d places; the words are in internal/build/house/words.go", strings.Join(bad, "\n"),
			len(bad))
	}
	return nil
}

func (t *tree) print(w io.Writer, verbose bool) {
	code, tests := 0, 0
	for _, s := range t.packages {
		code, tests = code+s.code, tests+s.tests
	}
	fmt.Fprintf(w, "%d packages, %d lines of Go, %d of tests\n\n", len(t.packages), code, tests)
	fmt.Fprintf(w, "packages of over %d lines without tests\n", maxPackage)
	t.printPackages(w)
	fmt.Fprintf(w, "\ntypes of over %d exported methods, or %d in all\n", maxExported, maxMethods)
	t.printTypes(w)
	fmt.Fprintln(w, "\nlongest functions")
	for _, f := range t.funcs[:min(longest, len(t.funcs))] {
		fmt.Fprintf(w, "  %5d  %s  %s\n", f.lines, f.name, f.file)
	}
	fmt.Fprintln(w, "\nwords and widths")
	t.printProse(w, verbose)
}

func (t *tree) printPackages(w io.Writer) {
	var names []string
	for name, s := range t.packages {
		if s.code > maxPackage {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return t.packages[b].code - t.packages[a].code })
	for _, name := range names {
		fmt.Fprintf(w, "  %5d  %s (tests: %d)\n", t.packages[name].code, name, t.packages[name].tests)
	}
}

func (t *tree) printTypes(w io.Writer) {
	var names []string
	for name, m := range t.types {
		if m.exported > maxExported || m.all > maxMethods {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return t.types[b].all - t.types[a].all })
	for _, name := range names {
		fmt.Fprintf(w, "  %5d  %s, %d exported\n", t.types[name].all, name, t.types[name].exported)
	}
}

func (t *tree) printProse(w io.Writer, verbose bool) {
	count := map[string]int{}
	for _, f := range t.prose {
		if count[f.rule]++; verbose {
			fmt.Fprintf(w, "  %s:%d: %s: %s\n", f.file, f.line, f.rule, f.text)
		}
	}
	var rules []string
	for rule := range count {
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b string) int { return count[b] - count[a] })
	for _, rule := range rules {
		fmt.Fprintf(w, "  %5d  %s\n", count[rule], rule)
	}
}
