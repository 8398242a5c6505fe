package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// compat is `make compat`: it runs the suites of tier compat, or the one that -run names, and writes their dated
// tables, which are committed; lint compares their age with the code that the suites name. A table says what failed,
// too: it is a report, no gate.
func (r *runner) compat(ctx context.Context, folders []string, now time.Time) error {
	suites := 0
	for _, s := range r.plan.Budget {
		if s.Tier != testplan.Compat || r.o.run != "" && r.o.run != s.Name {
			continue
		}
		suites++
		one := runner{out: r.out, root: r.root, dir: r.dir, o: r.o, plan: r.plan}
		one.o.run = ""
		one.plan.Tests = nil
		for _, t := range r.plan.Tests {
			if t.Suite == s.Name {
				one.plan.Tests = append(one.plan.Tests, t)
			}
		}
		one.plan.Now.All = true
		_, total, err := one.execute(ctx, folders)
		if err != nil {
			return err
		}
		if err := writeTable(filepath.Join(r.root, s.Table()), s, r.plan.Now.Commit, now, total); err != nil {
			return err
		}
		fmt.Fprintf(r.out, "%s is new: commit it\n", s.Table())
	}
	if suites == 0 {
		return fmt.Errorf("%s has no suite of tier compat named %q", testplan.BudgetFile, r.o.run)
	}
	return nil
}

// writeTable writes the table of a suite.
func writeTable(name string, s testplan.Suite, commit string, now time.Time, total *testreport.Report) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nMade by `make compat RUN=%s` on %s, of commit %.12s.\n\n| test | as | result |\n|---|---|---|\n",
		s.Name, s.Name, now.UTC().Format(time.DateOnly), commit)
	total.Each(func(k mustrun.Kind, o testreport.Outcome) {
		said, _, _ := strings.Cut(strings.ReplaceAll(o.Reason, "|", "\\|"), "\n")
		fmt.Fprintf(&b, "| %s | %s | %s |\n", o.Name, k, strings.TrimSpace(o.Action+" "+said))
	})
	_, err = io.WriteString(f, b.String())
	return errors.Join(err, f.Close())
}
