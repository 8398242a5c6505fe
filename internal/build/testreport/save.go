package testreport

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Saved is a report in a file, for the table at the end of a run of CI.
type Saved struct {
	Kinds []SavedKind
}

// SavedKind is what one kind of user ran.
type SavedKind struct {
	Kind  mustrun.Kind
	CPU   float64 // seconds of its processes, as far as somebody waited for them
	Tests []SavedTest
}

// SavedTest is one test without its subtests, which are counted.
type SavedTest struct {
	Name    string
	Action  string
	Seconds float64
	Count   int // of the test and its subtests
}

// Save writes the report to a file, whose folder is made.
func (r *Report) Save(name string) error {
	var s Saved
	for _, k := range r.kinds {
		kind := SavedKind{Kind: k, CPU: r.cpu[k].Seconds()}
		count := map[string]int{}
		for _, o := range r.outcomes[k] {
			count[top(o.Name)]++
		}
		for _, o := range r.outcomes[k] {
			if o.Name == top(o.Name) {
				kind.Tests = append(kind.Tests, SavedTest{o.Name, o.Action, o.Elapsed.Seconds(), count[o.Name]})
			}
		}
		s.Kinds = append(s.Kinds, kind)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// Load reads a saved report.
func Load(name string) (Saved, error) {
	var s Saved
	text, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Wall is the sum of the tests' times, which overlap.
func (k SavedKind) Wall() time.Duration {
	var sum float64
	for _, t := range k.Tests {
		sum += t.Seconds
	}
	return time.Duration(sum * float64(time.Second))
}
