// Testrun runs the tests as `make test` and `make test-all` do: it prints the
// lines of plain `go test`, then which tests this host cannot run and why.
//
//	usage: testrun [-require] [-matrix] [-race] [-run REGEXP] [-timeout D] [-parallel N] [PACKAGE...]
//
// With -require it also fails when a test named in .ci/must-run was skipped or
// is gone. With -matrix, as root, the packages that depend on the host run twice
// more: as an ordinary user with a range of subordinate ids, and as one without.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

const module = "github.com/hutch-sh/hutch"

// tags are those of the binaries, so that the tests see the same code.
const tags = "containers_image_openpgp,seccomp"

// options are the command line.
type options struct {
	require  bool
	matrix   bool
	race     bool
	run      string
	timeout  time.Duration // of one package's tests
	parallel int           // tests of one package at a time
	packages []string
	whole    bool // no test is left out, so that one which did not run is missing
}

func main() {
	var o options
	flag.BoolVar(&o.require, "require", false, "fail when a test named in .ci/must-run does not run")
	flag.BoolVar(&o.matrix, "matrix", false, "as root: run the host-dependent packages as ordinary users too")
	flag.BoolVar(&o.race, "race", false, "build the tests with the race detector")
	flag.StringVar(&o.run, "run", "", "only tests that match this `regexp`")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "limit of one package's tests")
	// Most tests wait for processes, not for a CPU.
	flag.IntVar(&o.parallel, "parallel", 2*runtime.NumCPU(), "tests of one package at a time, of those that allow it")
	flag.Parse()
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = []string{"./..."}
		o.whole = o.run == ""
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether every test passed and, with require, every must-run test
// ran. An error means that the tests could not be run at all.
func run(ctx context.Context, out io.Writer, o options) (bool, error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return false, err
	}
	list, err := mustrun.ReadFile(root)
	if err != nil {
		return false, err
	}
	if o.require {
		os.Setenv(testenv.RequireVar, testenv.RequireAll)
	}
	os.Setenv(testenv.BinVar, filepath.Join(root, "bin"))
	if err := testtree.BuildPrograms(ctx, root); err != nil {
		return false, err
	}
	var total testreport.Report
	r := testreport.NewReader(out, module, "")
	if err := goTest(ctx, r, o); err != nil {
		return false, err
	}
	ok := !r.Failed
	total.Add(testenv.CurrentKind(), r.Outcomes)
	if o.matrix && os.Geteuid() == 0 {
		passed, err := runMatrix(ctx, out, root, o, &total)
		if err != nil {
			return false, err
		}
		ok = ok && passed
	}
	total.Summary(out)
	if o.require && o.whole {
		unmet := total.Unmet(list)
		for _, line := range unmet {
			fmt.Fprintln(out, "FAIL: must run:", line)
		}
		ok = ok && len(unmet) == 0
	}
	return ok, ctx.Err()
}

// goTest runs `go test` for the user who called.
func goTest(ctx context.Context, r *testreport.Reader, o options) error {
	// Not from the cache: most tests look at the host, or drive binaries.
	args := []string{"test", "-json", "-count=1", "-tags", tags, "-timeout", o.timeout.String(), "-parallel", strconv.Itoa(o.parallel)}
	if o.race {
		args = append(args, "-race")
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	return stream(command(ctx, "go", append(args, o.packages...)...), r)
}

// command is exec.CommandContext with an end that tests can clean up after: an
// interrupt, to a process group of their own, because the go command does not
// pass it on.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// stream runs cmd and reads its events. A non-zero exit is a failure of tests,
// which the events have told already.
func stream(cmd *exec.Cmd, r *testreport.Reader) error {
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	readErr := r.Read(pipe)
	if err := cmd.Wait(); err != nil {
		r.Failed = true
	}
	return readErr
}
