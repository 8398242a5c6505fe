// Package e2b_test runs E2B's published SDKs, unchanged, against `hutch web --e2b`.
package e2b_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// sdk is a version of the SDKs, as `make deps-e2b` installs them.
type sdk struct {
	name, folder string
	program      string // that runs a script
}

var (
	pythonNew = sdk{"python-2.63.0", "py-new", "python3"}
	pythonOld = sdk{"python-2.21.1", "py-old", "python3"} // of May 2026
	nodeNew   = sdk{"node-2.51.0", "js-new", "node"}
	nodeOld   = sdk{"node-2.21.0", "js-old", "node"} // of May 2026
)

// at is where an SDK is installed. The test is skipped where it is not.
func (k sdk) at(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, k.program)
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache/e2b", k.folder)
	lock := "requirements.txt"
	if k.program == "node" {
		lock = "package-lock.json"
	}
	wanted, err := os.ReadFile(filepath.Join("testdata", k.folder, lock))
	if err != nil {
		t.Fatal(err)
	}
	has, err := os.ReadFile(filepath.Join(dir, lock))
	if err != nil || !bytes.Equal(has, wanted) {
		testenv.Require(t, probe.Check{Name: "E2B's SDK " + k.name, Status: probe.No,
			Detail: fmt.Sprintf("not as locked in %s: %v", dir, err), Remedy: "make deps-e2b"})
	}
	return dir
}

// run runs a script of testdata with an SDK, which prints ok when all of it was as it should.
func (k sdk) run(t *testing.T, s *server, script string, env []string, args ...string) string {
	t.Helper()
	dir := k.at(t)
	path, err := filepath.Abs("testdata/" + script)
	if err != nil {
		t.Fatal(err)
	}
	if k.program == "node" { // which looks for modules beside the script
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		path = s.w.Path(k.folder + ".mjs")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		err = os.Symlink(filepath.Join(dir, "node_modules"), s.w.Path("node_modules"))
		if err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), k.program, append([]string{path}, args...)...)
	cmd.Env = append(s.env(env...), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Dir = s.w.Path("home")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "ok") {
		t.Fatalf("%s with %s: %v\n%s", script, k.name, err, out)
	}
	return string(out)
}

// TestSmoke: one of the SDKs makes a sandbox, runs a command, writes a file and removes the sandbox.
func TestSmoke(t *testing.T) {
	testenv.Root(t) // others run a copy of the sources, without .cache
	t.Parallel()
	nodeNew.at(t)
	nodeNew.run(t, serve(t, world.New(t)), "sdk.mjs", nil, "smoke")
}

// TestPython runs the slices by the SDKs for Python.
func TestPython(t *testing.T) {
	testenv.Suite(t, "e2b")
	testenv.Root(t)
	t.Parallel()
	world.NeedsPython(t)
	for _, k := range []sdk{pythonNew, pythonOld} {
		t.Run(k.name, func(t *testing.T) { k.all(t) })
	}
}

// all runs what there is of an SDK in Python.
func (k sdk) all(t *testing.T) {
	t.Helper()
	k.at(t)
	w := world.New(t)
	w.ImportTiny(t, "tiny:latest")
	file := w.Path("template.yaml")
	if err := os.WriteFile(file, []byte("name: mine\nimage: host\nenv: {OF_TEMPLATE: 'yes'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.OK(t, "template", "create", "-f", file)
	s := serve(t, w)
	env := []string{"IMAGE=tiny:latest", "TEMPLATE=mine"}
	for _, script := range []string{"sandboxes.py", "commands.py", "files.py", "async.py"} {
		t.Run(script, func(t *testing.T) { k.run(t, s, script, env) })
	}
	if k == pythonNew { // older ones reach code at https://49999-ID.DOMAIN alone
		t.Run("code.py", func(t *testing.T) { k.run(t, s, "code.py", env) })
	}
	t.Run("state.py", func(t *testing.T) { k.run(t, s, "state.py", env, strings.TrimPrefix(k.folder, "py-")) })
}

// TestNode runs the slices by the SDKs for JavaScript.
func TestNode(t *testing.T) {
	testenv.Suite(t, "e2b")
	testenv.Root(t)
	t.Parallel()
	world.NeedsPython(t)
	for _, k := range []sdk{nodeNew, nodeOld} {
		t.Run(k.name, func(t *testing.T) {
			k.at(t)
			s := serve(t, world.New(t))
			for _, slice := range []string{"sandboxes", "commands", "files", "code", "state"} {
				if slice == "code" && k == nodeOld { // which reaches code at https://49999-ID.DOMAIN alone
					continue
				}
				t.Run(slice, func(t *testing.T) { k.run(t, s, "sdk.mjs", nil, slice) })
			}
		})
	}
}
