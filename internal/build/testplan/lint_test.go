package testplan

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLint has a repository break each rule.
func TestLint(t *testing.T) {
	testenv.Programs(t, "git")
	t.Setenv(BaseVar, "") // of the repository that the tests are in
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.org"},
			args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	commit := func(name, text, message string) {
		t.Helper()
		write(t, filepath.Join(root, name), text)
		run("add", "-A")
		run("commit", "-q", "-m", message)
	}
	lint := func(want string) {
		t.Helper()
		err := Lint(t.Context(), root)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("lint says %v, want %q", err, want)
		}
	}
	run("init", "-q")
	write(t, filepath.Join(root, "go.mod"), "module m\n")
	write(t, filepath.Join(root, ".ci", "must-run"), "")
	commit(".ci/budget", "all every 2400\n", "begin")
	lint("")
	commit(".ci/budget", "all every 2401\n", "one more")
	lint("the suites of tier every cost 2401 CPU seconds, at most 2400")
	commit(".ci/budget", "all every 1\n", "less")

	commit(".ci/unstable", "# why\na.TestX 2026-11-27, busy\na.TestY 2026-11-27, busy\n", "two are unstable")
	lint("")
	commit(".ci/unstable", "# why\na.TestX 2026-11-28, twice\n",
		"a: wait for the end\n\nCause: the end came before its event.\n")
	lint("")
	commit(".ci/unstable", "# why\n", "it was the machine")
	lint("takes a.TestX from it")
	run("reset", "-q", "--hard", "HEAD~1")
	lint("")

	commit(".ci/budget", "sdks compat 500 sdk\n", "a suite")
	lint("the suite sdks has no table")
	commit(CompatTable, "2026-11-27\n", "its table")
	lint("")
	for i := range CompatAge {
		commit("sdk/x", fmt.Sprint(i), "change the sdk")
	}
	commit("other", "x", "change something else")
	lint("")
	commit("sdk/x", "once more", "change the sdk")
	lint("51 commits of sdk old, at most 50")
}
