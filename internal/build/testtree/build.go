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

	"github.com/hutch-sh/hutch/internal/testenv"
)

// keepVar makes the program that the go command starts in place of a test binary (go test -exec) keep that binary in
// the folder that it names: see Keep.
const keepVar = "HUTCH_TEST_KEEP"

// BuildTests returns the command that compiles the tests of packages by one run of the go command, which shares what
// they have in common and works on as many as there are processors, and keeps the binaries in dir: this program, whose
// main calls Keep, is started for each of them. Its standard output are events as of go test -json, with those of what
// does not compile.
func BuildTests(ctx context.Context, root, dir, tags string, race bool, packages []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tests"), 0o755); err != nil {
		return nil, err
	}
	// Lint has run vet on all of it.
	args := []string{"test", "-json", "-count=1", "-vet=off", "-run=^$", "-tags", tags, "-exec", self}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = root, os.Stderr, append(os.Environ(), keepVar+"="+dir)
	return cmd, nil
}

// Keep is the first thing that the main of a program that calls BuildTests does. In a process that the go command has
// started for that, it keeps the test binary that the arguments name, for the package whose folder is the working
// directory, and exits.
func Keep() {
	dir := os.Getenv(keepVar)
	if dir == "" {
		return
	}
	root, err := testenv.ModuleRoot()
	if err == nil {
		err = keep(root, dir, os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keep a test binary:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keep puts a binary into dir, as Binary names it, readable by everybody.
func keep(root, dir, binary string) error {
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
		return fmt.Errorf("the tests of %s: %w", pkg, err)
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

// Folders are the folders below the module's root of the packages that patterns of the go command name, as far as they
// have tests.
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
