package run_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestPythonExample runs the example as a reader would.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	w := world.New(t)
	cmd := exec.Command("/usr/bin/python3", filepath.Join(root, "docs", "examples", "python", "host.py"))
	cmd.Dir = w.Dir
	cmd.Env = append(w.Vars[:len(w.Vars):len(w.Vars)], "PYTHONPATH="+filepath.Join(root, "sdk", "python", "src"),
		"PYTHONDONTWRITEBYTECODE=1", "HUTCH_BIN="+filepath.Join(w.Bin, "hutch"))
	out := w.Finish(t, cmd).Want(t, 0).Stdout
	for _, line := range []string{
		"ran: olleh exit code 3",
		"followed: ['step 1', 'step 2', 'step 3']",
		"answered: hello agent",
		"read back: True",
		"timed out: timeout_wall started",
		"cancelled, processes left: 0",
		"shell: /tmp/demo 42",
		"refused: not_found",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// TestEmbedExample runs the program that has hutch inside.
func TestEmbedExample(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	want := `ran: "olleh\n", exit code 3, verdict nonzero
streamed: "name?\n"
streamed: "hello agent\n"
streamed: exit code 0
read: "written from outside\n"
cancelled: exec.run: the user has seen enough
timed out: true, verdict timeout_wall, after "started\n"
shell: ""
shell: "/tmp/demo\n42\n"
`
	if got := w.Finish(t, w.Program("example-embed")).Want(t, 0).Stdout; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if left := w.Left(world.Patience); len(left) > 0 {
		t.Errorf("left after its end: %v", left)
	}
}

// TestEmbedKilled: nothing is left of a program that has hutch inside and is killed at
// any moment, nor of its daemon and its sandbox.
func TestEmbedKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	for i := range world.Rounds(50) {
		cmd := w.Program("example-embed")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(600 * time.Millisecond)
		world.Kill(t, cmd.Process.Pid)
		_ = cmd.Wait()
		if left := w.Left(world.Patience); len(left) > 0 {
			t.Fatalf("round %d: left: %v", i, left)
		}
	}
}
