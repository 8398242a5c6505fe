package testtree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KeepVar makes the program that the go command starts in place of a test binary (go test -exec) keep that binary in the folder that
// it names: see Keep.
const KeepVar = "HUTCH_TEST_KEEP"

// BuildTests returns the command that compiles the tests of packages by one run of the go command, which shares what they have in
// common and works on as many as there are processors, and keeps the binaries in dir: keeper is a program that calls Keep. Its
// standard output are events as of go test -json, with those of what does not compile.
func BuildTests(ctx context.Context, root, dir, keeper, tags string, race bool, packages []string) (*exec.Cmd, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tests"), 0o755); err != nil {
		return nil, err
	}
	// Lint has run vet on all of it.
	args := []string{"test", "-json", "-count=1", "-vet=off", "-run=^$", "-tags", tags, "-exec", keeper}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = root, os.Stderr, append(os.Environ(), KeepVar+"="+dir)
	return cmd, nil
}

// Keep keeps the test binary of the package whose folder is the working directory: in dir, as Binary names it, readable by everybody.
func Keep(root, dir, binary string) error {
	at, err := os.Getwd()
	if err != nil {
		return err
	}
	pkg, err := filepath.Rel(root, at)
	if err != nil {
		return err
	}
	to := Binary(dir, filepath.ToSlash(pkg))
	if err := os.Link(binary, to); err == nil {
		return os.Chmod(to, 0o755)
	}
	from, err := os.Open(binary) // on another file system
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("keep the tests of %s: %w", pkg, err)
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// Built lists the packages, by their folders, whose tests are in dir.
func Built(dir string, packages []string) []string {
	var found []string
	for _, pkg := range packages {
		if _, err := os.Stat(Binary(dir, pkg)); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, pkg)
		}
	}
	return found
}

// Folders are the folders below the module's root of the packages that patterns of the go command name, as far as they have tests.
func Folders(ctx context.Context, root, tags string, packages []string) ([]string, error) {
	format := `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-tags", tags, "-f", format}, packages...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	var folders []string
	for dir := range strings.Lines(string(out)) {
		rel, err := filepath.Rel(root, strings.TrimSuffix(dir, "\n"))
		if err != nil {
			return nil, err
		}
		if rel != "." {
			folders = append(folders, filepath.ToSlash(rel))
		}
	}
	return folders, nil
}
