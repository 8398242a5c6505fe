package testreport

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestDiffer: an audit fails for a test that ends differently for two kinds of user, and for no other.
func TestDiffer(t *testing.T) {
	var r Report
	r.Add(mustrun.Root, []Outcome{{Name: "a.TestSame", Action: "pass"}, {Name: "a.TestOther", Action: "pass"},
		{Name: "a.TestOnce", Action: "pass"}})
	r.Add(mustrun.SubUID, []Outcome{{Name: "a.TestSame", Action: "pass"}, {Name: "a.TestOther", Action: "skip"}})
	var out strings.Builder
	if r.Differ(&out) {
		t.Error("nothing differs")
	}
	if got := out.String(); !strings.HasPrefix(got, "FAIL: a.TestOther: pass as root, skip as subuid: ") ||
		strings.Count(got, "FAIL") != 1 {
		t.Errorf("said %q", got)
	}
}
