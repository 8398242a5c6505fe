// Testrun runs the tests as `make test` and `make test-all` do: it prints the
// lines of plain `go test`, then which tests this host cannot run and why.
//
//	usage: testrun [-require] [-matrix] [-race] [-run REGEXP] [-timeout D] [-parallel N] [-jobs N] [-report FILE]
//	       [-audit] [-brief] [-hunt D] [PACKAGE...]
//	       testrun -due SUITE
//
// With -require it also fails when a test named in .ci/must-run was skipped or
// is gone. With -matrix, as root, the tests that depend on the user run as an
// ordinary user with a range of subordinate ids and as one without, too, and
// every other test once: see internal/build/testplan. All tests are compiled
// once, and run from the same binaries.
//
// A test that failed only because a wait ran out (testenv.Late) is run three
// times more; if it passes then it is unstable, which is reported, and allowed
// three times and once a name: see unstable.go.
//
// With -due it runs nothing: it exits with 0 when tests of that suite run now,
// for which the Makefile then installs what they need.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

const module = "github.com/hutch-sh/hutch"

// tags are those of the binaries, so that the tests see the same code, and share what is compiled.
const tags = "containers_image_openpgp,seccomp,netgo,osusergo"

// options are the command line.
type options struct {
	require  bool
	matrix   bool
	race     bool
	run      string
	timeout  time.Duration // of one package's tests
	parallel int           // tests of one package at a time
	jobs     int           // packages at a time
	report   string        // file for what ran, for the table at the end of .ci/run
	only     string        // PACKAGE=REGEXP: of that package only these tests
	audit    bool          // a tenth of the tests along axes that they do not declare
	hunt     time.Duration // for how long to hunt races: hunt.go
	due      string        // a suite: only say whether it is due
	packages []string
	brief    bool // the fewest rounds of each test, and nothing of suites
	whole    bool // no test is left out, so that one which did not run is missing
}

func main() {
	testtree.Keep()
	var o options
	flag.BoolVar(&o.require, "require", false, "fail when a test named in .ci/must-run does not run")
	flag.BoolVar(&o.matrix, "matrix", false,
		"as root: run what depends on the user as ordinary users too, and the rest once")
	flag.BoolVar(&o.race, "race", false, "build the tests with the race detector")
	flag.StringVar(&o.run, "run", "", "only tests that match this `regexp`")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "limit of one package's tests")
	// Most tests wait for processes, not for a CPU.
	flag.IntVar(&o.parallel, "parallel", 2*runtime.NumCPU(), "tests of one package at a time, of those that allow it")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU()*3/2, "packages at a time")
	flag.StringVar(&o.report, "report", "", "write what ran to this `file`")
	flag.StringVar(&o.only, "only", "", "`PACKAGE=REGEXP`: of that package only these tests")
	flag.BoolVar(&o.audit, "audit", false, "run a tenth of the tests along axes that they do not declare")
	flag.BoolVar(&o.brief, "brief", false,
		"the fewest rounds of each test that -run does not name, and nothing of suites")
	flag.DurationVar(&o.hunt, "hunt", 0,
		"run the tests again and again for so long on a machine that is made hostile to races")
	flag.StringVar(&o.due, "due", "", "run nothing, and exit with 0 when this `suite` runs now")
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
func run(ctx context.Context, out io.Writer, o options) (ok bool, err error) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		return false, err
	}
	plan, err := testplan.Read(ctx, root)
	if err != nil {
		return false, err
	}
	if o.due != "" {
		return plan.DueSuite(o.due), nil
	}
	plan.Audit, plan.Brief = o.audit, o.brief
	if o.require {
		os.Setenv(testenv.RequireVar, testenv.RequireAll)
	}
	os.Setenv(testenv.BinVar, filepath.Join(root, "bin"))
	if err := testtree.BuildPrograms(ctx, root); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "hutch-test-")
	if err != nil {
		return false, err
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil {
			err = removed
		}
	}()
	begin := time.Now()
	folders, ok, err := build(ctx, out, root, dir, o)
	if err != nil || !ok {
		return false, err
	}
	fmt.Fprintf(out, "made the tests of %d packages in %.0f s\n", len(folders), time.Since(begin).Seconds())
	r := runner{out: out, root: root, dir: dir, o: o, plan: plan}
	ok, total, err := r.execute(ctx, folders)
	if err != nil {
		return false, err
	}
	if o.report != "" {
		err = total.Save(o.report)
	}
	return ok, errors.Join(err, ctx.Err())
}

// execute runs the compiled tests of packages, prints how they ended, and reports whether the run is green.
func (r *runner) execute(ctx context.Context, folders []string) (ok bool, total *testreport.Report, err error) {
	if err := r.plans(folders); err != nil {
		return false, nil, err
	}
	if err := errors.Join(r.prepare(ctx), r.stage()); err != nil {
		return false, nil, err
	}
	if r.o.hunt > 0 {
		fmt.Fprintf(r.out, "hunting for %v in %d packages and kinds of user\n", r.o.hunt, len(r.jobs))
		ok, err := r.hunt(ctx, r.o.hunt)
		return ok, &testreport.Report{}, err
	}
	if ok, err = r.all(ctx); err != nil {
		return false, nil, err
	}
	total = r.report()
	total.Summary(r.out)
	ok = total.Remembered(r.out, r.plan.Unstable) && ok
	if r.o.audit {
		ok = total.Differ(r.out) && ok
	}
	if r.o.require && r.o.whole {
		unmet := total.Unmet(r.plan.Due())
		for _, line := range unmet {
			fmt.Fprintln(r.out, "FAIL: must run:", line)
		}
		ok = ok && len(unmet) == 0
	}
	return ok, total, nil
}

// build compiles the tests into dir and returns the folders of their packages; not ok: something did not compile.
func build(ctx context.Context, out io.Writer, root, dir string, o options) (folders []string, ok bool, err error) {
	folders, err = testtree.Folders(ctx, root, tags, o.packages)
	if err != nil {
		return nil, false, err
	}
	cmd, err := testtree.BuildTests(ctx, root, dir, tags, o.race, o.packages)
	if err != nil {
		return nil, false, err
	}
	var text bytes.Buffer
	r := testreport.NewReader(&text, module, "")
	interruptible(cmd)
	if err := stream(cmd, r); err != nil {
		return nil, false, err
	}
	if r.Failed {
		_, err := text.WriteTo(out)
		return nil, false, err
	}
	return testtree.Built(dir, folders), true, nil
}

// interruptible gives cmd an end that tests can clean up after: an interrupt, to a process group of their own, because
// the go command does not pass it on.
func interruptible(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
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

// kinds are the users that run the tests.
func (o options) kinds() []mustrun.Kind {
	if o.matrix && os.Geteuid() == 0 {
		return []mustrun.Kind{mustrun.Root, mustrun.SubUID, mustrun.NoSubUID}
	}
	return []mustrun.Kind{testenv.CurrentKind()}
}
