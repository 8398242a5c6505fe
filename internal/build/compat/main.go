// Compat runs E2B's own test suites, which are no part of its packages, against `hutch web --e2b`, and writes what
// became of each test to docs/compatibility.md: `make compat E2B=DIR`. It runs as root.
//
//	usage: compat [-code DIR] [-only REGEXP] -e2b DIR
//
// DIR is a checkout of github.com/e2b-dev/E2B, that of -code one of github.com/e2b-dev/code-interpreter. The packages
// that the suites need are installed there and below .cache/compat. With -only suites, the table is printed and not
// written.
//
// The suites run in a network of their own, which has loopback and nothing else: no key and no test reaches E2B.
// Each runs twice. What passes without a server has mocked one; the other tests touch a server, and are counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/testenv"
)

func main() {
	e2b := flag.String("e2b", "", "the checkout of E2B")
	code := flag.String("code", "", "the checkout of the code interpreter")
	only := flag.String("only", "", "run the suites that match, and print their table")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *e2b, *code, *only); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, e2b, code, only string) (err error) {
	if e2b == "" {
		return errors.New("no checkout is named: make compat E2B=DIR, where DIR is one of github.com/e2b-dev/E2B")
	}
	if os.Geteuid() != 0 {
		return errors.New("a network of the suites' own takes root")
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		return err
	}
	known, err := readReasons(reasonsText)
	if err != nil {
		return err
	}
	all, err := suites(e2b, code)
	if err != nil {
		return err
	}
	cache := filepath.Join(root, ".cache/compat")
	if err := install(ctx, cache, e2b, code); err != nil {
		return err
	}
	r := report{Date: time.Now().UTC(), Commit: head(ctx, root)}
	if err := alone(); err != nil {
		return fmt.Errorf("make a network of the suites' own: %w", err)
	}
	s, err := serve(ctx, filepath.Join(root, "bin"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	for _, suite := range all {
		if !match.MatchString(suite.Name) {
			continue
		}
		tests, err := suite.run(ctx, cache, s, known)
		if err != nil {
			return fmt.Errorf("%s: %w", suite.Name, err)
		}
		r.Suites = append(r.Suites, outcome{suite, tests})
	}
	if only != "" {
		return r.write(os.Stdout)
	}
	return r.save(filepath.Join(root, testplan.CompatTable))
}

// head is the commit that the product is of.
func head(ctx context.Context, root string) string {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
