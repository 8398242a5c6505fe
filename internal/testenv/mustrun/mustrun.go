// Package mustrun reads .ci/must-run: the list of tests that must have run and
// passed where continuous integration runs, so that a skip there is a failure.
package mustrun

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is the list's place below the module's root.
const File = ".ci/must-run"

// Kind is a kind of user that runs the tests; what a host allows depends on it.
type Kind string

// The kinds of user the product must work for.
const (
	Root     Kind = "root"      // uid 0
	SubUID   Kind = "subuid"    // an ordinary user with a range in /etc/subuid
	NoSubUID Kind = "no-subuid" // an ordinary user without one
)

// Once names no kind: the test depends on no user, and runs as whichever of the host's users the plan of the tests
// gives it to (internal/build/testplan).
const Once Kind = "once"

// Ordinary is the ordinary user to which the plan of the tests gives a test that depends on privilege: one of the two.
const Ordinary Kind = "ordinary"

// VM begins the kinds that are cases of integration/vm: "vm-6.12" and so on.
const VM = "vm-"

// Rule is one line of the list: the tests it names, and for whom.
type Rule struct {
	Tests *regexp.Regexp // matched against Name's result
	Kinds []Kind         // empty: whoever runs the tests
}

// List is the whole file.
type List []Rule

// Name is how the list spells a test: the package's folder below the module's
// root, a dot, and the test with its subtests.
func Name(pkgDir, test string) string { return pkgDir + "." + test }

// Parse reads a list: a line holds a regular expression and then, optionally,
// the kinds of user it holds for. Empty lines and lines starting with # say
// nothing.
func Parse(r io.Reader) (List, error) {
	var list List
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		tests, err := regexp.Compile(fields[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		rule := Rule{Tests: tests}
		for _, f := range fields[1:] {
			k := Kind(f)
			if !slices.Contains([]Kind{Root, SubUID, NoSubUID, Ordinary, Once}, k) && !strings.HasPrefix(f, VM) {
				return nil, fmt.Errorf("line %d: unknown kind of user %q (root, subuid, no-subuid, ordinary, once, vm-CASE)", n, f)
			}
			rule.Kinds = append(rule.Kinds, k)
		}
		list = append(list, rule)
	}
	return list, lines.Err()
}

// ReadFile parses the list in File below root.
func ReadFile(root string) (List, error) {
	name := filepath.Join(root, File)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// Holds reports whether the rule holds for a user of this kind.
func (r Rule) Holds(k Kind) bool {
	return len(r.Kinds) == 0 || slices.Contains(r.Kinds, k) || slices.Contains(r.Kinds, Once) &&
		!strings.HasPrefix(string(k), VM) ||
		slices.Contains(r.Kinds, Ordinary) && (k == SubUID || k == NoSubUID)
}

// About reports whether the rule is about a top-level test, or subtests of it.
func (r Rule) About(test string) bool {
	if r.Tests.MatchString(test) {
		return true
	}
	text := r.Tests.String()
	at := strings.LastIndex(text, ".Test")
	if at < 0 {
		return false
	}
	name, _, below := strings.Cut(text[at:], "/")
	if !below {
		return false
	}
	top, err := regexp.Compile(text[:at] + name + "$")
	return err == nil && top.MatchString(test)
}

// Names reports whether some rule says that this kind of user must run test.
func (l List) Names(k Kind, test string) bool {
	return slices.ContainsFunc(l, func(r Rule) bool { return r.Holds(k) && r.Tests.MatchString(test) })
}
