package sdk_test

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// oldest and newest are the versions of Python 3 that the package is for.
const oldest, newest = 9, 14

// interpreter is a Python that runs here.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	// A shim of a version that is not installed is found and does not run.
	out, err := exec.Command(name, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		testenv.Require(t, probe.Check{Name: name, Status: probe.No, Detail: err.Error(), Remedy: "install it"})
	}
	return strings.TrimSpace(string(out))
}

// source is the package, as it lies in the tree.
func source(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../../sdk/python/src")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// python is an interpreter with the package, and with the world's daemon as the user's.
func python(t *testing.T, w *world.World, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(interpreter(t, name), args...)
	cmd.Dir = w.Dir
	cmd.Env = append(w.Vars[:len(w.Vars):len(w.Vars)], "PYTHONPATH="+source(t), "PYTHONDONTWRITEBYTECODE=1",
		"HUTCH_BIN="+filepath.Join(w.Bin, "hutch"))
	return cmd
}

// unittest runs the package's own tests against the world's daemon, or those of some names.
func unittest(t *testing.T, name string, only ...string) {
	t.Helper()
	tests, err := filepath.Abs("../../sdk/python/tests")
	if err != nil {
		t.Fatal(err)
	}
	const run = `
import sys, unittest
runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2)
unittest.main(module=None, argv=["unittest", "discover", *sys.argv[1:]], testRunner=runner)`
	args := []string{"-W", "error", "-u", "-c", run, "-s", tests}
	for _, o := range only {
		args = append(args, "-k", o)
	}
	w := world.New(t)
	if r := w.FinishInSteps(t, python(t, w, name, args...)); r.Code != 0 {
		t.Errorf("%s: exit code %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
	}
}

// TestPython: the Python package does what its own tests ask of it, against a real daemon.
func TestPython(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	unittest(t, "python3")
}

// TestPythonVersions: so it does in each version of Python that there is, and in PyPy.
func TestPythonVersions(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	names := []string{"pypy3"}
	for minor := oldest; minor <= newest; minor++ {
		names = append(names, fmt.Sprintf("python3.%d", minor))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			unittest(t, name, "test_run", "test_stream", "test_cancelled", "test_private")
		})
	}
}

// TestPythonLost: a sandbox, and a command that runs in it, survive the death of the daemon.
func TestPythonLost(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	w := world.New(t)
	survives(t, w, python(t, w, "python3", "-c", `
import sys
from hutch import Sandbox
sandbox = Sandbox.create()
sandbox.run("mkfifo /tmp/go", check=True)
process = sandbox.exec("echo one; read a </tmp/go; echo two $a")
output = iter(process)
print(next(output).text.strip(), flush=True)
sys.stdin.readline()
sandbox.run("echo x >/tmp/go", check=True)
print(next(output).text.strip(), list(output), process.wait().verdict)
`))
}

// survives runs a program that makes a sandbox with a command, which prints "one", reads a line when the daemon is dead,
// and then prints what the rest of the command was.
func survives(t *testing.T, w *world.World, cmd *exec.Cmd) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("one\n"))
	if _, err := io.ReadFull(stdout, first); err != nil || string(first) != "one\n" {
		t.Errorf("%q, %v", first, err)
	} else {
		world.KillNow(t, []int{w.Daemon(t).Hutchd})
	}
	_, _ = stdin.Write([]byte("\n"))
	rest, err := io.ReadAll(stdout)
	if werr := cmd.Wait(); err != nil || werr != nil || string(rest) != "two x [] ok\n" {
		t.Errorf("%q, %v, %v\n%s", rest, err, werr, stderr.String())
	}
}
