package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestAgentLoop: what an agent does with a failing test, over MCP: it looks, runs, changes, runs again; the user looks
// at what it has changed and applies it. The folder is as it was until then, and has the fix and nothing else after.
func TestAgentLoop(t *testing.T) {
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	dir := w.Path("project")
	if err := os.CopyFS(dir, os.DirFS("testdata/project")); err != nil {
		t.Fatal(err)
	}
	before := world.List(t, dir)
	m := dialMCP(t, w, "--workspace", dir+":overlay", "host")
	if text := m.InitializeResult().
		Instructions; !strings.Contains(text, "until the user has looked at it and applied it") {
		t.Errorf("%q", text)
	}
	says := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not say %q", text, part)
			}
		}
	}
	says(m.call(t, "sandbox_list_directory", false, world.Args{"recursive": true}), "prices/cart.py",
		"tests/test_cart.py")
	says(m.call(t, "sandbox_find_files", false, world.Args{"query": "cart"}), "prices/cart.py\n")
	says(m.call(t, "sandbox_grep_files", false, world.Args{"pattern": `def \w*total`, "globs": []string{"*.py"}}),
		"prices/cart.py:11:    def total")
	says(m.call(t, "sandbox_read_file", false, world.Args{"path": "prices/cart.py"}), "for price in self.prices")
	// Without files of bytecode: Python takes an old one for that of a source which has its size and its second.
	unittest := world.Args{"command": "python3 -B -m unittest -q"}
	says(m.call(t, "sandbox_run_command", true, unittest), "AssertionError: 34 != 31", "FAILED (failures=2)",
		"exit code 1")

	// Text that is not there, a patch that does not fit: both leave the file alone, and say what to do.
	says(m.call(t, "sandbox_find_replace", true, world.Args{"path": "prices/cart.py", "find": "return summe",
		"replace": "x"}), "hint: ")
	says(m.call(t, "sandbox_apply_patch", true,
		world.Args{"patch": "--- a/prices/cart.py\n+++ b/prices/cart.py\n@@ -1 +1 @@\n-nothing\n+x\n"}), "does not fit",
		"hint: ")
	says(m.call(t, "sandbox_find_replace", false, world.Args{"path": "prices/cart.py", "find": "(100 + self.discount)",
		"replace": "(100 - self.discount)"}), "replaced 1 occurrence")
	says(m.call(t, "sandbox_run_command", true, unittest), "FAILED (failures=1)")
	says(m.call(t, "sandbox_apply_patch", false, world.Args{"patch": `diff --git a/prices/cart.py b/prices/cart.py
--- a/prices/cart.py
+++ b/prices/cart.py
@@ -7,3 +7,5 @@ class Cart:
     def add(self, price):
+        if price < 0:
+            raise ValueError("a price is not negative")
         self.prices.append(price)
`}), "prices/cart.py")
	says(m.call(t, "sandbox_run_command", false, unittest), "OK", "exit code 0")
	if got := world.List(t, dir); got != before {
		t.Fatalf("the folder was touched:\n%s", got)
	}

	// The user.
	id := strings.TrimSpace(w.OK(t, "ps", "-q"))
	c := w.Connect(t)
	d, err := c.DiffWorkspace(t.Context(), api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: id},
		Unified: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range d.Changes {
		if ch.Path != "prices/cart.py" && !strings.Contains(ch.Path, "__pycache__") {
			t.Errorf("%+v", ch)
		}
	}
	says(d.Diff, "-        return sum * (100 + self.discount) // 100\n+        return sum * (100 - self.discount) // 100\n", "+        if price < 0:\n")
	world.Apply(t, w, dir, 0, id, "prices/cart.py")
	text := world.Read(t, "testdata/project/prices/cart.py")
	fixed := strings.Replace(strings.Replace(text, "100 + self", "100 - self", 1), "        self.prices.append",
		"        if price < 0:\n            raise ValueError(\"a price is not negative\")\n        self.prices.append",
		1)
	if got := world.List(t, dir); got != strings.Replace(before, text, fixed, 1) || fixed == text {
		t.Errorf("applied:\n%s", got)
	}
	if out, err := testsOf(dir); err != nil {
		t.Errorf("the tests on the host: %v\n%s", err, out)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if out := w.OK(t, "ps", "-aq"); out != "" {
		t.Errorf("left: %q", out)
	}
	if got := world.List(t, dir); got != strings.Replace(before, text, fixed, 1) {
		t.Errorf("in the end:\n%s", got)
	}
}

// testsOf runs a project's tests, and leaves nothing in it.
func testsOf(dir string) (string, error) {
	cmd := exec.Command("/usr/bin/python3", "-B", "-m", "unittest", "-q")
	cmd.Dir, cmd.Env = filepath.Clean(dir), []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
