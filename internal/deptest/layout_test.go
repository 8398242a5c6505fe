package deptest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// topLevel is everything that may lie beside go.mod (ARCHITECTURE.md).
var topLevel = []string{
	".ci", ".gitignore", ".golangci.yml",
	"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "SPEC.md",
	"cgroups", "cmd", "docs", "findings", "go.mod", "go.sum", "images", "integration", "internal", "netfilter",
	"runtime", "sdk", "seccomp",
}

// made are ours too, but never in a commit.
var made = []string{".git", ".cache", "bin", "dist"}

func TestTopLevel(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(topLevel, e.Name()) && !slices.Contains(made, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}

// TestFolderRuntime: a package named runtime would shadow std's in every reader's
// mind.
func TestFolderRuntime(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(root, "runtime", "*.go")); files != nil {
		t.Errorf("runtime/ holds no Go files of its own, found %v", files)
	}
}

// TestFileLength: one subject a file, at most 500 lines.
func TestFileLength(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "find", root, "-name", "*.go", "-not", "-path", "*/.cache/*").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(out)) {
		data, err := os.ReadFile(strings.TrimSpace(name))
		if err != nil {
			t.Error(err)
			continue
		}
		generated := bytes.Contains(data, []byte("\n// Code generated ")) ||
			bytes.HasPrefix(data, []byte("// Code generated "))
		if n := bytes.Count(data, []byte("\n")); n > 500 && !generated {
			t.Errorf("%s has %d lines: split it by subject", strings.TrimSpace(name), n)
		}
	}
}
