package web_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestContract: a validator of OpenAPI 3.1 takes the document, and schemathesis finds that the server does as it says:
// requests that it has and others, one by one, and on what earlier ones have made.
func TestContract(t *testing.T) {
	testenv.Suite(t, "rest")
	t.Parallel()
	testenv.Root(t) // others run a copy of the sources, without .cache
	packages := installed(t)
	w := world.New(t)
	// No image but the machine's own: names that are made up would be asked for at a registry.
	s := withTokens(t, w, w.Path("tokens.yaml"), `tokens:
  contract: {digest: "`+digest("token-of-contract")+`", images: [host], sandboxes: 150, timeout: 600}
`).as("token-of-contract")
	doc := w.Path("openapi.json")
	if err := os.WriteFile(doc, s.ask(t, "GET", "/openapi.json", nil).body, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	python := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("python3", args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.Path("home"), "LANG=C.UTF-8",
			"PYTHONPATH=" + packages,
			"PYTHONDONTWRITEBYTECODE=1", "SCHEMATHESIS_HOOKS=" + hooksOf(args, data)}
		cmd.Dir = w.Dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	python("-m", "openapi_spec_validator", doc)
	run := func(args ...string) string {
		t.Helper()
		return python(append([]string{filepath.Join(packages, "bin", "schemathesis"), "--config-file",
			filepath.Join(data, "schemathesis.toml"), "run", s.url + "/openapi.json", "--checks", "all", "-H",
			"Authorization: Bearer token-of-contract"}, args...)...)
	}
	run("--phases", "examples,coverage,fuzzing")
	said := run("--phases", "stateful", "--mode", "positive")
	covered := regexp.MustCompile(`API Links: +(\d+) covered`).FindStringSubmatch(said)
	if covered == nil || len(covered[1]) < 2 { // a link that leads nowhere is covered by nobody
		t.Errorf("hardly any link was followed:\n%s", said)
	}
	t.Log(said)
}

// installed is where the programs are, as they are locked.
func installed(t *testing.T) string {
	t.Helper()
	testenv.Programs(t, "python3")
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, ".cache/rest")
	wanted, err := os.ReadFile("testdata/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	if has, err := os.ReadFile(filepath.Join(dir, "requirements.txt")); err != nil || !bytes.Equal(has, wanted) {
		testenv.Require(t, probe.Check{Name: "schemathesis", Status: probe.No,
			Detail: fmt.Sprintf("not as locked in %s: %v", dir, err), Remedy: "make deps-rest"})
	}
	return dir
}

// hooksOf is the file of hooks for a run in which all bodies are right.
func hooksOf(args []string, data string) string {
	if strings.Contains(strings.Join(args, " "), "stateful") {
		return filepath.Join(data, "hooks.py")
	}
	return ""
}
