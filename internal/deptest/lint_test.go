package deptest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// lintCases are imports that .golangci.yml must refuse, each with a part of the
// reason it must give and an import that stays allowed in the same folder.
var lintCases = []struct{ folder, forbidden, reason, allowed string }{
	{"runtime/api", "golang.org/x/sys/unix", "runtime/api imports std only", "encoding/json"},
	{"runtime/api", module + "/internal/version", "runtime/api imports std only", "errors"},
	{"runtime/client", module + "/runtime/sandbox", "programs embed it", module + "/runtime/api"},
	{"images", module + "/seccomp", "images imports runtime/api and internal", module + "/internal/cleanup"},
	{"seccomp", module + "/cgroups", "seccomp imports runtime/api and internal", module + "/runtime/api"},
	{"cgroups", module + "/runtime/sandbox", "cgroups imports runtime/api and internal",
		"github.com/opencontainers/cgroups"},
	{"netfilter", module + "/images", "netfilter imports runtime/api and internal", module + "/runtime/api"},
	{"runtime/sandbox", module + "/images", "small interfaces of its deps.go", module + "/runtime/launch/launchapi"},
	{"runtime/sandbox", module + "/runtime/launch", "small interfaces of its deps.go", module +
		"/runtime/guest/guestapi"},
	{"runtime/server", module + "/images", "it dispatches", module + "/internal/jsonrpc"},
	{"runtime/spec", "github.com/opencontainers/runc/libcontainer", "libcontainer/configs only",
		"github.com/opencontainers/runc/libcontainer/configs"},
	{"runtime/spec", module + "/internal/sys", "runtime/spec is pure", module + "/runtime/api"},
	{"runtime/launch", module + "/images", "loaded on every sandbox start", module + "/cgroups"},
	{"runtime/launch/launchapi", module + "/seccomp", "messages, not the launcher", module + "/runtime/api"},
	{"runtime/files", module + "/runtime/sandbox", "does not know it", module + "/runtime/excerpt"},
	{"runtime/exec", module + "/runtime/sandbox", "does not know runtime/sandbox", module +
		"/runtime/launch/launchapi"},
	{"runtime/shell", module + "/runtime/sandbox", "on top of runtime/exec", module + "/runtime/exec"},
	{"runtime/guard", module + "/runtime/workspace", "does not know it", module + "/runtime/guest/guestapi"},
	{"runtime/workspace", module + "/runtime/sandbox", "does not know runtime/sandbox", module + "/runtime/guard"},
	{"runtime/warm", module + "/runtime/sandbox", "does not know it", module + "/runtime/api"},
	{"runtime/meter", module + "/runtime/sandbox", "does not know runtime/sandbox", module + "/runtime/exec"},
	{"runtime/exec", module + "/runtime/meter", "does not know runtime/sandbox", module + "/runtime/api"},
	{"runtime/keep", module + "/runtime/sandbox", "does not know runtime/sandbox", module + "/runtime/workspace"},
	{"runtime/history", module + "/runtime/sandbox", "on top of runtime/keep", module + "/runtime/keep"},
	{"runtime/guest", module + "/runtime/sandbox", "PID 1 of untrusted code", module + "/internal/sys"},
	{"internal/cleanup", module + "/runtime/sandbox", "internal is below every other folder", module + "/runtime/api"},
	{"cmd/hutch", module + "/images", "cmd/hutch is a client", "github.com/spf13/cobra"},
	{"cmd/hutchd", module + "/runtime/launch", "through their api packages", module + "/runtime/launch/launchapi"},
	{"cmd/hutch-init", module + "/runtime/sandbox", "lives among untrusted code", module + "/runtime/guest"},
	{"cmd/hutch-mcp", module + "/runtime/sandbox", "every tool is one call",
		"github.com/modelcontextprotocol/go-sdk/mcp"},
	{"runtime/rest", module + "/runtime/sandbox", "every request is a call", module + "/runtime/client"},
	{"runtime/rest", "connectrpc.com/connect", "belongs to runtime/rest/e2b", module + "/runtime/client"},
	{"runtime/rest/e2b", module + "/runtime/sandbox", "every request is a call", "connectrpc.com/connect"},
	{"cmd/hutch", "github.com/modelcontextprotocol/go-sdk/mcp", "belongs to cmd/hutch-mcp", "github.com/spf13/cobra"},
	{"runtime/mode", module + "/runtime/sandbox", "small interfaces", module + "/internal/audit"},
	{"cmd/hutchd", module + "/internal/hostexec", "runs nothing on the host", module + "/runtime/mode"},
	{"runtime/tools", module + "/runtime/server", "need not know", module + "/runtime/sandbox"},
	{"cmd/hutch-netd", module + "/netfilter/proxy", "rights that its caller lacks", module + "/netfilter/netd"},
	{"netfilter/netd", module + "/netfilter/proxy", "what runs privileged stays small", module + "/netfilter/bpf"},
	{"integration", module + "/runtime/sandbox", "drives built binaries", module + "/runtime/client"},
	{"integration/world", module + "/runtime/sandbox", "drives built binaries", module + "/runtime/client"},
	{"integration/bench", module + "/integration/world", "for the end-to-end tests", module + "/runtime/client"},
	{"runtime/server", "go.podman.io/image/v5/types", "belong to images", "net"},
	{"images", "github.com/miekg/dns", "belongs to netfilter", "go.podman.io/image/v5/types"},
	{"cgroups", "github.com/cilium/ebpf", "netfilter/bpf and netfilter/netd", "os"},
	{"runtime/launch", "github.com/seccomp/libseccomp-golang", "belongs to seccomp", module + "/seccomp"},
	{"images", "unsafe", "belongs to internal/sys", "strings"},
	{"images", "log", "slog, injected", "log/slog"},
}

// callCases are calls that are refused in some folders, with an allowed twin.
var callCases = []struct {
	file, imported, call, reason string
	refuse                       bool
}{
	{"images/unpack/planted1/planted.go", "os", "os.Create", "CVE-2024-45310", true},
	{"images/unpack/planted2/planted_test.go", "os", "os.Create", "", false},
	{"images/planted3/planted.go", "os", "os.Create", "", false},
	{"images/planted4/planted.go", "time", "time.Sleep", "wait for an event", true},
	{"images/planted5/planted_test.go", "time", "time.Sleep", "wait for an event", true},
	{"images/planted6/planted.go", "time", "time.After", "", false},
	{"images/planted7/planted_test.go", "time", "time.After", "testenv.Within", true},
	{"images/planted8/planted_test.go", "time", "time.Tick", "testenv.Within", true},
	{"images/planted9/planted_test.go", "time", "time.NewTimer", "", false},
	{"internal/testenv/planted.go", "time", "time.Sleep", "", false},
	{"internal/testenv/planted_test.go", "time", "time.After", "", false},
	{"internal/testenv/planted10/planted.go", "time", "time.Sleep", "wait for an event", true},
	{"images/planted11/planted_test.go", "testing", "(*testing.T).Skip", "testenv.Require", true},
	{"images/planted12/planted_test.go", "testing", "(*testing.B).Skipf", "testenv.Require", true},
	{"images/planted13/planted_test.go", "testing", "testing.TB.SkipNow", "testenv.Require", true},
	{"images/planted14/planted.go", "testing", "testing.TB.Skip", "testenv.Require", true},
	{"images/planted15/planted_test.go", "testing", "func(t *testing.T) { t.Skip() }", "testenv.Require", true},
	{"images/planted16/planted_test.go", "testing", "func(t testing.TB) { t.Skipf(t.Name()) }",
		"testenv.Require", true},
	{"images/planted17/planted_test.go", "testing", "(*testing.T).Skipped", "", false},
	{"internal/testenv/planted2_test.go", "testing", "(*testing.T).Skip", "", false},
}

// TestLintRefuses adds every forbidden import to a copy of the tree and expects
// its reason; the allowed imports, in the same run, must not be mentioned.
func TestLintRefuses(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	linter := filepath.Join(root, ".cache", "bin", "golangci-lint")
	testenv.Require(t, linterBuilt(linter))
	tree := copyGo(t, root)
	if out, err := lint(t, linter, tree, "depguard", "./runtime/api"); err != nil {
		t.Fatalf("lint fails on an unchanged folder: %v\n%s", err, out)
	}
	for i, c := range lintCases {
		write(t, tree, planted(c.folder, "forbidden", i), c.forbidden)
		write(t, tree, planted(c.folder, "allowed", i), c.allowed)
	}
	out, err := lint(t, linter, tree, "depguard", "./...")
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("lint accepts forbidden imports: %v\n%s", err, out)
	}
	for i, c := range lintCases {
		if !lineWith(out, planted(c.folder, "forbidden", i), c.reason) {
			t.Errorf("%s importing %s: no line with %q", c.folder, c.forbidden, c.reason)
		}
		if lineWith(out, planted(c.folder, "allowed", i), "") {
			t.Errorf("%s importing %s is refused but should not be", c.folder, c.allowed)
		}
	}
	if t.Failed() {
		t.Logf("lint said:\n%s", out)
	}
}

// TestLintRefusesCalls does the same for calls.
func TestLintRefusesCalls(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	linter := filepath.Join(root, ".cache", "bin", "golangci-lint")
	testenv.Require(t, linterBuilt(linter))
	tree := copyGo(t, root)
	var folders []string
	for _, c := range callCases {
		folders = append(folders, "./"+path.Dir(c.file))
		writeFile(t, tree, c.file, "package "+path.Base(path.Dir(c.file))+"\n\nimport \""+c.imported+"\"\n\nvar _ = "+
			c.call+"\n")
	}
	out, err := lint(t, linter, tree, "forbidigo", folders...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("lint accepts forbidden calls: %v\n%s", err, out)
	}
	for _, c := range callCases {
		if refused := lineWith(out, c.file+":", c.reason); refused != c.refuse {
			t.Errorf("%s, %q: refused %v, want %v; lint said:\n%s", c.file, c.call, refused, c.refuse, out)
		}
	}
}

// linterBuilt says whether the linter is there. Building it takes a minute or
// two, which `make test` spares people who never lint.
func linterBuilt(path string) probe.Check {
	c := probe.Check{Name: "linter", Status: probe.Yes, Detail: path}
	if _, err := os.Stat(path); err != nil {
		c = probe.Check{Name: "linter", Status: probe.No, Detail: "not built yet", Remedy: "make lint"}
	}
	return c
}

// lint lets one linter look at packages. Import rules need no type information,
// hence nothing of what the tree imports.
func lint(t *testing.T, linter, tree, rule string, packages ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), linter,
		append([]string{"run", "--allow-parallel-runners", "--enable-only", rule}, packages...)...)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOLANGCI_LINT_CACHE="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func lineWith(out string, parts ...string) bool {
	for line := range strings.Lines(out) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}

// planted is the file of case i. It is a package of its own below the case's
// folder, for which the same rules hold: nobody imports it, so forbidden arrows
// cannot close a cycle that hides them.
func planted(folder, kind string, i int) string {
	return path.Join(folder, fmt.Sprintf("%s%d", kind, i), "planted.go")
}

func write(t *testing.T, tree, file, imported string) {
	t.Helper()
	writeFile(t, tree, file, "package planted\n\nimport _ \""+imported+"\"\n")
}

func writeFile(t *testing.T, tree, file, text string) {
	t.Helper()
	name := filepath.Join(tree, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyGo copies what lint looks at: our Go files, go.mod and the rules. Tests are
// left out, so that a folder with only an external test package still is one.
func copyGo(t *testing.T, root string) string {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "copy")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (rel == ".git" || rel == ".cache" || rel == "bin" || rel == "internal/tools"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(tree, rel), 0o755)
		case rel != "go.mod" && rel != "go.sum" && rel != ".golangci.yml" &&
			(!strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go")):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tree, rel), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
