package testplan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Lint checks what `make lint` promises of the plan of the module in root: declarations that can be read, a budget that
// is kept, no row that left .ci/unstable without a cause, and no compat table that is too old.
func Lint(ctx context.Context, root string) error {
	p, err := Read(ctx, root)
	if err != nil {
		return err
	}
	var errs []error
	if every, _ := p.Budget.Cost(); every > EveryLimit {
		errs = append(errs, fmt.Errorf("%s: the suites of tier every cost %d CPU seconds, at most %d are theirs: move one to another tier, or make it cheaper",
			BudgetFile, every, EveryLimit))
	}
	errs = append(errs, lintMemory(ctx, root))
	for _, s := range p.Budget {
		if s.Tier == Compat {
			errs = append(errs, lintTable(ctx, root, s))
		}
	}
	return errors.Join(errs...)
}

// lintMemory looks at each commit that took a row from the memory: its message names the cause. A shallow clone shows
// what it has.
func lintMemory(ctx context.Context, root string) error {
	commits, err := git(ctx, root, "log", "--format=%H", "--", MemoryFile)
	if err != nil {
		return nil // no repository: there is nothing to look at
	}
	var errs []error
	for _, commit := range strings.Fields(commits) {
		diff, err := git(ctx, root, "show", "--format=", "--unified=0", commit, "--", MemoryFile)
		if err != nil {
			return err
		}
		message, err := git(ctx, root, "show", "-s", "--format=%B", commit)
		if err != nil {
			return err
		}
		for _, name := range removed(diff) {
			if !strings.Contains("\n"+message, "\nCause: ") {
				errs = append(errs, fmt.Errorf("%s: commit %.12s takes %s from it, and its message has no line \"Cause: ...\"", MemoryFile, commit, name))
			}
		}
	}
	return errors.Join(errs...)
}

// removed are the tests whose rows a diff of the memory takes away, and does not put back with other words.
func removed(diff string) []string {
	gone, kept := []string{}, map[string]bool{}
	for line := range strings.Lines(diff) {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "+++") || len(line) < 2 {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSpace(line[1:]), " ")
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case line[0] == '-':
			gone = append(gone, name)
		case line[0] == '+':
			kept[name] = true
		}
	}
	var names []string
	for _, name := range gone {
		if !kept[name] {
			names = append(names, name)
		}
	}
	return names
}

// CompatTable is where `make compat` keeps its dated table, below the module's root.
const CompatTable = "docs/compatibility.md"

// lintTable counts the commits to the folders of a compat suite since its table was made.
func lintTable(ctx context.Context, root string, s Suite) error {
	if _, err := os.Stat(filepath.Join(root, CompatTable)); err != nil {
		return fmt.Errorf("the suite %s has no table: make compat E2B=DIR: %w", s.Name, err)
	}
	made, err := git(ctx, root, "log", "-1", "--format=%H", "--", CompatTable)
	if err != nil || made == "" {
		return nil // no repository, or not committed yet
	}
	count, err := git(ctx, root, append([]string{"rev-list", "--count", made + "..HEAD", "--"}, s.Folders...)...)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(count); err != nil || n > CompatAge {
		return fmt.Errorf("%s is %s commits of %s old, at most %d: make compat E2B=DIR", CompatTable, count,
			strings.Join(s.Folders, ", "), CompatAge)
	}
	return nil
}
