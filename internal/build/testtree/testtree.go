// Package testtree copies what tests need, compiled tests included, to a folder from
// which somebody else can run them: another user, or a virtual machine.
package testtree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Stage fills dir with the sources (tests read their testdata) and the binaries, all readable by everybody. BuildTests
// adds compiled tests. more are folders that git does not have.
func Stage(root, dir string, more ...string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := copyTree(root, filepath.Join(dir, "src")); err != nil {
		return err
	}
	for _, made := range append([]string{Tools, cached}, more...) {
		if err := copyTree(filepath.Join(root, made), filepath.Join(dir, "src", made)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// BuildPrograms builds what the tests run and nobody installs, beside the binaries: the
// examples, and a static client for sandboxes.
func BuildPrograms(ctx context.Context, root string) error {
	for name, pkg := range map[string]string{"example-embed": "./docs/examples/embed",
		"test-resolve": "./integration/resolve"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(root, "bin", name), pkg)
		cmd.Dir, cmd.Stderr, cmd.Env = root, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// What is not of the repository.
const (
	Tools      = ".cache/tools/usr/bin" // what make deps unpacked, if it did
	TypeScript = ".cache/typescript"    // what make deps installed, if it did
	Obeyed     = ".cache/obeyed"        // what make deps-obeyed installed, if it did
	Agents     = ".cache/agents"        // what make deps-agents fetched, if it did
	cached     = ".cache/test"          // what tests made once, such as images
)

// Binary is the compiled test of a package in a folder that Stage filled.
func Binary(dir, pkg string) string {
	return filepath.Join(dir, "tests", strings.ReplaceAll(pkg, "/", "_")+".test")
}

// copyTree copies files and folders but for what tests do not read: the history,
// caches and the module of the tools.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{".git", ".cache", "dist", "internal/tools"}, rel):
			if !d.IsDir() {
				return nil // a linked work tree's .git, where SkipDir would skip all of its siblings
			}
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's temporary file, gone meanwhile
		} else if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, info.Mode().Perm()|0o444)
	})
}
