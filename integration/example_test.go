package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestPythonExample runs the example as a reader would.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	needsPython(t)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(root, "docs", "examples", "python", "hutch.py")
	if _, err := os.Stat(script); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	cmd := exec.Command("/usr/bin/python3", script)
	cmd.Env, cmd.Dir = w.vars, w.dir
	out := w.finish(t, cmd).want(t, 0).stdout
	for _, line := range []string{
		"ran: olleh exit code 3",
		"followed: ['step 1', 'step 2', 'step 3']",
		"refused: not_found",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}
