package testplan

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BudgetFile is the place of the budget below the module's root.
const BudgetFile = ".ci/budget"

// EveryLimit is what all suites of tier every may cost together, in CPU seconds.
const EveryLimit = 2400

// CompatAge is how many commits the code that a compat suite names may be ahead of the table that the suite has made.
const CompatAge = 50

// Tier says when a suite runs.
type Tier string

// The tiers.
const (
	Every    Tier = "every"    // each run of CI
	Changed  Tier = "changed"  // when the difference from the merge base touches the folders that the suite names
	Rotating Tier = "rotating" // an eighth of its tests each run, chosen by the hash of the commit
	Compat   Tier = "compat"   // not in CI: by `make compat`, which commits a dated table that CI compares by its age
)

// Suite is one line of the budget.
type Suite struct {
	Name    string
	Tier    Tier
	CPU     int      // seconds of a run of all of it
	Folders []string // that it tests, below the module's root
}

// Budget is the whole file.
type Budget []Suite

// ParseBudget reads a budget: a line holds a suite's name, its tier, its CPU seconds, and the folders that it tests,
// which a changed or compat suite must have. Empty lines and lines starting with # say nothing.
func ParseBudget(r io.Reader) (Budget, error) {
	var b Budget
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 3 {
			return nil, fmt.Errorf("line %d: want NAME TIER CPU-SECONDS [FOLDER...], got %q", n, lines.Text())
		}
		s := Suite{Name: f[0], Tier: Tier(f[1]), Folders: f[3:]}
		if !slices.Contains([]Tier{Every, Changed, Rotating, Compat}, s.Tier) {
			return nil, fmt.Errorf("line %d: unknown tier %q (every, changed, rotating, compat)", n, f[1])
		}
		cpu, err := strconv.Atoi(f[2])
		if err != nil || cpu <= 0 {
			return nil, fmt.Errorf("line %d: CPU seconds %q are no positive number", n, f[2])
		}
		s.CPU = cpu
		if len(s.Folders) == 0 && (s.Tier == Changed || s.Tier == Compat) {
			return nil, fmt.Errorf("line %d: a suite of tier %s names the folders that it tests", n, s.Tier)
		}
		if b.Suite(s.Name) != nil {
			return nil, fmt.Errorf("line %d: a second suite %s", n, s.Name)
		}
		b = append(b, s)
	}
	return b, lines.Err()
}

// ReadBudget parses BudgetFile below root.
func ReadBudget(root string) (Budget, error) {
	name := filepath.Join(root, BudgetFile)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := ParseBudget(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// Suite finds a suite; nil when there is none of that name.
func (b Budget) Suite(name string) *Suite {
	if i := slices.IndexFunc(b, func(s Suite) bool { return s.Name == name }); i >= 0 {
		return &b[i]
	}
	return nil
}

// Cost is what a run of CI may cost: all of tier every, and an eighth of each rotating suite.
func (b Budget) Cost() (every, rotating int) {
	for _, s := range b {
		switch s.Tier {
		case Every:
			every += s.CPU
		case Rotating:
			rotating += (s.CPU + 7) / 8
		}
	}
	return every, rotating
}

// Due reports whether a test of the suite runs now: what changed since the merge base, and the commit, decide.
func (s Suite) Due(test string, now Now) bool {
	switch s.Tier {
	case Changed:
		return slices.ContainsFunc(now.Changed, func(file string) bool {
			return slices.ContainsFunc(s.Folders, func(folder string) bool {
				return file == folder ||
					strings.HasPrefix(file, folder+"/")
			})
		})
	case Rotating:
		return share(test, 8) == share(now.Commit, 8)
	case Compat:
		return false
	default:
		return true
	}
}

// Now is what the tiers go by.
type Now struct {
	All     bool     // every suite is due, whatever its tier
	Commit  string   // its hash
	Changed []string // files that differ from the merge base, below the module's root
}

// share is into which of n shares of equal size a text falls.
func share(text string, n uint64) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, text) // a hash takes everything
	sum := h.Sum64()
	return (sum ^ sum>>32) % n
}
