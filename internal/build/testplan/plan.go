package testplan

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Plan decides what runs as whom.
type Plan struct {
	Tests  []Test
	Budget Budget
	Now    Now
	List   mustrun.List
	// Unstable is the memory of tests that were unstable once, by name and kind.
	Unstable Memory
	// Audit turns the plan around: a tenth of the tests, by the hashes of their names and of the commit, run along the
	// axes that they do not declare, where they must make no difference.
	Audit bool
	// Brief is the plan of `make test`: the fewest rounds of each test, and nothing of suites, which take long.
	Brief bool
}

// Read makes the plan of the module in root, for its present commit.
func Read(ctx context.Context, root string) (Plan, error) {
	tests, err := ReadTests(root)
	if err != nil {
		return Plan{}, err
	}
	budget, err := ReadBudget(root)
	if err != nil {
		return Plan{}, err
	}
	list, err := mustrun.ReadFile(root)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Tests: tests, Budget: budget, List: list}
	if p.Unstable, err = ReadMemory(root); err != nil {
		return Plan{}, err
	}
	if p.Now, err = readNow(ctx, root); err != nil {
		return Plan{}, err
	}
	return p, p.check()
}

// check fails for suites that nobody has put into the budget.
func (p Plan) check() error {
	var errs []error
	for _, t := range p.Tests {
		if t.Suite != "" && p.Budget.Suite(t.Suite) == nil {
			errs = append(errs, fmt.Errorf("%s.%s belongs to the suite %s, which %s does not name", t.Pkg, t.Name,
				t.Suite, BudgetFile))
		}
	}
	return errors.Join(errs...)
}

// due reports whether the test's suite runs now.
func (p Plan) due(t Test) bool {
	if t.Suite == "" || p.Now.All {
		return true
	}
	if p.Brief {
		return false
	}
	s := p.Budget.Suite(t.Suite)
	return s == nil || s.Due(mustrun.Name(t.Pkg, t.Name), p.Now)
}

// DueSuite reports whether some test of a suite runs now.
func (p Plan) DueSuite(name string) bool {
	return slices.ContainsFunc(p.Tests, func(t Test) bool { return t.Suite == name && p.due(t) })
}

// Repeats reports whether a machine runs the test now, if it is one of the machine's. The budget may have a suite by
// the machine's name: when that is not due, only smoke tests run there. Two machines that run the same tests on two
// kernels share them. When both are due, each test runs in one of the two, by the hash of the commit and of its name.
// When neither is, one of the two runs the smoke tests, by the hash of the commit, and the other is not started.
func (p Plan) Repeats(t Test, k mustrun.Kind) bool {
	if p.Now.All {
		return true
	}
	due := func(k mustrun.Kind) bool {
		s := p.Budget.Suite(string(k))
		return s == nil || s.Due(mustrun.Name(t.Pkg, t.Name), p.Now)
	}
	for _, pair := range sharing {
		i := slices.Index(pair[:], k)
		if i < 0 || p.Budget.Suite(string(pair[0])) == nil || p.Budget.Suite(string(pair[1])) == nil {
			continue
		}
		switch mine, other := due(k), due(pair[1-i]); {
		case !mine && !other:
			return t.Smoke && share(p.Now.Commit, 2) == uint64(i)
		case mine && other && !t.Smoke:
			return share(p.Now.Commit+mustrun.Name(t.Pkg, t.Name), 2) == uint64(i)
		}
	}
	return t.Smoke || due(k)
}

// sharing are machines that run the same tests on two kernels.
var sharing = [][2]mustrun.Kind{{"vm-6.1", "vm-newest"}, {"vm-netd-6.1", "vm-netd"}}

// Due is the list of tests that must run, less who is not given the tests now because their suite is not due.
func (p Plan) Due() mustrun.List {
	all := p
	all.Now.All = true
	runs := func(p Plan, r mustrun.Rule, k mustrun.Kind) bool {
		return slices.ContainsFunc(p.Tests, func(t Test) bool {
			return r.About(mustrun.Name(t.Pkg, t.Name)) &&
				p.Runs(t, k)
		})
	}
	var list mustrun.List
	for _, r := range p.List {
		kinds := slices.DeleteFunc(slices.Clone(r.Kinds), func(k mustrun.Kind) bool {
			return k != mustrun.Once && runs(all, r, k) && !runs(p, r, k)
		})
		if len(kinds) == 0 && len(r.Kinds) > 0 || !p.dueFor(r) {
			continue
		}
		list = append(list, mustrun.Rule{Tests: r.Tests, Kinds: kinds})
	}
	return list
}

// dueFor reports whether some test that a rule is about is due, or there is none at all.
func (p Plan) dueFor(r mustrun.Rule) bool {
	about := 0
	for _, t := range p.Tests {
		if r.About(mustrun.Name(t.Pkg, t.Name)) {
			if about++; p.due(t) {
				return true
			}
		}
	}
	return about == 0
}

// Runs reports whether a test runs as a kind of user or machine in a run of CI:
//
//   - a test of one machine runs there, and nowhere else; where the budget says so only when what it is about has
//     changed;
//   - the host's users (root, subuid, no-subuid) repeat what depends on the user; what depends on privilege alone runs
//     as root and as one of the other two, by the hash of its name. What depends on neither runs once: as the ordinary
//     user with subordinate ids, or as root, by the hash of its name, if .ci/must-run does not say as whom;
//   - the machines of other kernels repeat what depends on the kernel, that of most users (vm-6.12) what depends on
//     cgroups, too, and those with hutch-netd what depends on eBPF; where the budget says so only when what they are
//     about has changed.
func (p Plan) Runs(t Test, k mustrun.Kind) bool {
	if p.Audit {
		return p.audits(t, k)
	}
	if !p.due(t) {
		return false
	}
	if machine, ok := strings.CutPrefix(string(k), mustrun.VM); ok {
		switch {
		case !p.Repeats(t, k):
			return false
		case len(t.Machines) > 0:
			return slices.Contains(t.Machines, machine)
		case machine == "6.12":
			return t.On(testenv.Kernel) || t.On(testenv.Cgroup)
		case machine == "6.1" || machine == "newest":
			return t.On(testenv.Kernel)
		case strings.HasPrefix(machine, "netd"):
			return t.On(testenv.EBPF)
		}
		return false
	}
	if len(t.Machines) > 0 {
		return false
	}
	switch {
	case t.On(testenv.User):
		return true
	case t.On(testenv.Privilege):
		return k == mustrun.Root || k == mustrun.Ordinary || k == ordinary(t)
	}
	return k == p.once(t)
}

// ordinary is the user without privilege that runs a test which depends on privilege alone: the same one each time, so
// that what breaks is seen by the commit that breaks it.
func ordinary(t Test) mustrun.Kind {
	return []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID}[share(mustrun.Name(t.Pkg, t.Name), 2)]
}

// Short reports whether a test that k runs makes fewer rounds of what it only repeats in order to meet a race (-short):
// end-to-end tests do, but for an eighth of them, another one for each commit, and so does an ordinary user with what
// root runs as well. Who wants to meet races hunts them (make hunt).
func (p Plan) Short(t Test, k mustrun.Kind) bool {
	switch {
	case p.Now.All:
		return false
	case p.Brief:
		return true
	case (t.On(testenv.User) || t.On(testenv.Privilege)) && (k == mustrun.SubUID || k == mustrun.NoSubUID):
		return true
	}
	// Other tests may be left out by -short.
	return t.EndToEnd() && share(mustrun.Name(t.Pkg, t.Name), 8) != share(p.Now.Commit, 8)
}

// audits is Runs of an audit.
func (p Plan) audits(t Test, k mustrun.Kind) bool {
	if len(t.Machines) > 0 || share(mustrun.Name(t.Pkg, t.Name), 10) != share(p.Now.Commit, 10) {
		return false
	}
	switch machine, _ := strings.CutPrefix(string(k), mustrun.VM); machine {
	case "6.1", "newest":
		return t.EndToEnd() && !t.On(testenv.Kernel)
	case "root", "subuid", "no-subuid":
		return !t.On(testenv.User) && !slices.Contains(aboutSources, t.Pkg)
	}
	return false
}

// aboutSources are packages with tests of the repository itself: they need the toolchain, which only the caller has.
var aboutSources = []string{
	"internal/deptest", "internal/build/testrun", "internal/build/testplan", "internal/build/fuzz", "integration/vm",
}

// once is the kind of user that runs a test which depends on no user: root for what .ci/must-run does not name for
// others, else one of those that it names, by the hash of the test's name, so that not all of it is tested as root
// alone.
func (p Plan) once(t Test) mustrun.Kind {
	kinds := p.required(t)
	if len(kinds) == 0 {
		return mustrun.Root
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, t.Name) // a hash takes everything
	sum := h.Sum32()
	return kinds[(sum^sum>>16)%uint32(len(kinds))]
}

// required are the kinds of the host's users that .ci/must-run names for a test. "once" names root and the ordinary
// user with subordinate ids.
func (p Plan) required(t Test) []mustrun.Kind {
	named := map[mustrun.Kind]bool{}
	for _, r := range p.List {
		if !r.Tests.MatchString(mustrun.Name(t.Pkg, t.Name)) && !r.Tests.MatchString(mustrun.Name(t.Pkg, t.Name)+"/") {
			continue
		}
		for _, k := range r.Kinds {
			named[k] = true
		}
	}
	if named[mustrun.Once] {
		named[mustrun.Root], named[mustrun.SubUID] = true, true
	}
	return slices.DeleteFunc([]mustrun.Kind{mustrun.Root, mustrun.SubUID, mustrun.NoSubUID},
		func(k mustrun.Kind) bool { return !named[k] })
}

// Selected returns the tests of a package that run as k and, if only is given, match it as the go command's -run does
// for top-level tests.
func (p Plan) Selected(pkg string, k mustrun.Kind, only *regexp.Regexp) []Test {
	return p.filter(func(t Test) bool {
		return t.Pkg == pkg && p.Runs(t, k) && (only == nil || only.MatchString(t.Name))
	})
}

// Kinds are all users and machines of a run of CI that run a test.
func (p Plan) Kinds(t Test) []mustrun.Kind {
	var kinds []mustrun.Kind
	for _, k := range AllKinds {
		if p.Runs(t, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// AllKinds are the users and machines of a run of CI: the host's users, and the cases of integration/vm.
var AllKinds = []mustrun.Kind{
	mustrun.Root, mustrun.SubUID, mustrun.NoSubUID, "vm-6.12", "vm-6.1", "vm-newest", "vm-netd", "vm-netd-6.1",
	"vm-delegation", "vm-none",
	"vm-single", "vm-quota", "vm-apparmor",
}

// Packages are the folders of all packages with tests.
func (p Plan) Packages() []string {
	var all []string
	for _, t := range p.Tests {
		all = append(all, t.Pkg)
	}
	return slices.Compact(all) // the tests are in their order
}

// Here returns the tests of a package for a run of one kind of user: all but those of machines and of suites that are
// not due. Who names tests by only gets them whether they are due or not.
func (p Plan) Here(pkg string, only *regexp.Regexp) []Test {
	return p.filter(func(t Test) bool {
		return t.Pkg == pkg && len(t.Machines) == 0 &&
			(only == nil && p.due(t) || only != nil && only.MatchString(t.Name))
	})
}

func (p Plan) filter(keep func(Test) bool) []Test {
	var list []Test
	for _, t := range p.Tests {
		if keep(t) {
			list = append(list, t)
		}
	}
	return list
}

// Weight guesses how long tests of a package take: those that run alone in it add up, and end-to-end tests are a
// hundred times longer, those of the image store half of that.
func Weight(tests []Test) int {
	weight := 0
	for _, t := range tests {
		one := 1
		switch {
		case t.EndToEnd():
			one = 100
		case t.Pkg == "images":
			one = 50
		}
		if !t.Parallel {
			one *= 4
		}
		weight += one
	}
	return weight
}

// Names are the names of tests.
func Names(tests []Test) []string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.Name
	}
	return names
}

// Pattern is the -run expression that runs exactly these tests, and of their subtests those that the rest of a -run
// expression, what stands behind its first slash, selects.
func Pattern(names []string, rest string) string {
	pattern := "^(" + strings.Join(names, "|") + ")$"
	if rest != "" {
		pattern += "/" + rest
	}
	return pattern
}

// Split cuts a -run expression at its first slash: what selects top-level tests, and the rest.
func Split(run string) (top *regexp.Regexp, rest string, err error) {
	if run == "" {
		return nil, "", nil
	}
	depth, first := 0, run // a slash in brackets does not cut
	for i, c := range run {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '/':
			if depth == 0 {
				first, rest = run[:i], run[i+1:]
				top, err = regexp.Compile(first)
				return top, rest, err
			}
		}
	}
	top, err = regexp.Compile(first)
	return top, rest, err
}

// BaseVar names the commit that tier changed compares with, when it is not the merge base with origin's main.
const BaseVar = "HUTCH_CI_BASE"

// SuitesVar set to SuitesAll makes all suites due.
const (
	SuitesVar = "HUTCH_TEST_SUITES"
	SuitesAll = "all"
)

// readNow asks git. Without a repository (an unpacked archive) every suite is due.
func readNow(ctx context.Context, root string) (Now, error) {
	if os.Getenv(SuitesVar) == SuitesAll {
		return Now{All: true}, nil
	}
	head, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return Now{All: true}, nil
	}
	base, err := mergeBase(ctx, root, head)
	if err != nil {
		return Now{}, err
	}
	files, err := git(ctx, root, "diff", "--name-only", base)
	return Now{Commit: head, Changed: strings.Fields(files)}, err
}

// mergeBase is the commit with which tier changed compares. Behind a push to main the merge base is the commit itself:
// then it is the last commit of the day before, which has what one landing may bring.
func mergeBase(ctx context.Context, root, head string) (string, error) {
	if base := os.Getenv(BaseVar); base != "" {
		return git(ctx, root, "rev-parse", "--verify", base+"^{commit}")
	}
	if base, err := git(ctx, root, "merge-base", "HEAD", "origin/main"); err == nil && base != head {
		return base, nil
	}
	date, err := git(ctx, root, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return "", err
	}
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil {
		return "", err
	}
	base, err := git(ctx, root, "rev-list", "-1", fmt.Sprintf("--before=%d", seconds-24*60*60), "HEAD")
	if err == nil && base == "" {
		base, err = git(ctx, root, "hash-object", "-t", "tree", "/dev/null") // a young repository: all of it is new
	}
	return base, err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
