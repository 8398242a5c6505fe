// Package testenv is what tests may ask about the machine they run on.
//
// A test that depends on the host imports it (the test runner takes that import
// as the sign to run the package for every kind of user), and skips through
// Require only, so that each skip carries a probe's finding and remedy.
package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Environment variables between the test runner and the tests.
const (
	// RequireVar set to RequireAll turns the skip of a test that .ci/must-run
	// names into a failure.
	RequireVar = "HUTCH_TEST_REQUIRE"
	RequireAll = "all"
	// KindVar is the mustrun.Kind of a virtual machine, whoever the user is.
	KindVar = "HUTCH_TEST_KIND"
	// MatrixVar is "all" to have each cell of a matrix tested, and not only enough that each two values meet.
	MatrixVar = "HUTCH_TEST_MATRIX"
	// SlowVar is how many times slower than hardware this machine is.
	SlowVar = "HUTCH_TEST_SLOW"
	// BinVar is the folder with the built binaries; ModuleRoot's bin without it.
	BinVar = "HUTCH_TEST_BIN"
)

// Require skips t unless every check says yes. What the host cannot do is shown
// with the probe's finding and remedy. Where RequireVar asks for it, a test named
// in .ci/must-run fails instead.
func Require(t testing.TB, checks ...probe.Check) {
	t.Helper()
	for _, c := range checks {
		if c.Status == probe.Yes {
			continue
		}
		reason := c.Name + ": " + string(c.Status) + " (" + c.Detail + ")"
		if c.Remedy != "" {
			reason += "; remedy: " + strings.Join(strings.Fields(c.Remedy), " ")
		}
		if mustRun(t) {
			t.Fatal("this test must run here, but " + reason)
		} else {
			t.Skip(reason)
		}
		return
	}
}

// mustRun reports whether .ci/must-run names t for this kind of user and the
// caller of the tests wants that enforced.
func mustRun(t testing.TB) bool {
	t.Helper()
	if os.Getenv(RequireVar) != RequireAll {
		return false
	}
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	list, err := mustrun.ReadFile(root)
	if err != nil {
		t.Fatal(err)
	}
	// The go command runs tests in the folder of their package.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := filepath.Rel(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	kind := CurrentKind()
	if vm := os.Getenv(KindVar); vm != "" {
		kind = mustrun.Kind(vm)
	}
	return list.Names(kind, mustrun.Name(filepath.ToSlash(pkg), t.Name()))
}

// CurrentKind is the kind of user that runs this process.
func CurrentKind() mustrun.Kind {
	if os.Geteuid() == 0 {
		return mustrun.Root
	}
	if probe.SubIDs().Status == probe.Yes {
		return mustrun.SubUID
	}
	return mustrun.NoSubUID
}

// Patience is d, or as much more as an emulated machine needs (SlowVar): a bound on
// waiting for what must happen.
func Patience(d time.Duration) time.Duration {
	if slow, err := strconv.Atoi(os.Getenv(SlowVar)); err == nil && slow > 1 {
		return d * time.Duration(slow)
	}
	return d
}

// ModuleRoot is the folder of the nearest go.mod at or above the working
// directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("no go.mod at or above " + dir)
		}
	}
}

// Bin is the absolute path of a built binary, e.g. Bin(t, "hutch"). A missing
// one is a failure: tests of binaries run behind `make build`.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(BinVar)
	if dir == "" {
		root, err := ModuleRoot()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it with `make build`", err)
	}
	return path
}
