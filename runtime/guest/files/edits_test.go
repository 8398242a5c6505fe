package files

import (
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestDiffAgainstGit: git applies what diff shows, and gets what the edits make.
func TestDiffAgainstGit(t *testing.T) {
	testenv.Programs(t, "git")
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		var text strings.Builder
		for range random.IntN(40) {
			text.WriteString([]string{"a", "b", "ab", "", "x"}[random.IntN(5)])
			text.WriteString([]string{"\n", "\n", "\n", ""}[random.IntN(4)])
		}
		content := text.String()
		pattern := []string{"a", "b\n", "ab", "a\nb", "\n\n", "x\n", "\n"}[random.IntN(7)]
		with := []string{"", "y", "y\n", "y\nz", "\n"}[random.IntN(5)]
		var edits []edit
		for _, m := range regexp.MustCompile(pattern).FindAllStringIndex(content, -1) {
			edits = append(edits, edit{m[0], m[1], with})
		}
		if len(edits) == 0 {
			continue
		}
		want, err := applied(content, edits, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		d, truncated := diff("f", content, edits, 1<<20)
		if truncated || want == content {
			continue
		}
		dir := t.TempDir()
		put(t, dir+"/f", content)
		cmd := exec.Command("git", "apply", "-p0", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(d))
		if out, err := cmd.CombinedOutput(); err != nil && want != "" {
			t.Errorf("%d: %q with %q for %q: %v, %s\n%s", i, content, with, pattern, err, out, d)
			continue
		}
		if got := get(t, dir+"/f"); got != want && want != "" {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}
