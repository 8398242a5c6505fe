// Vm runs tests in virtual machines: other kernels, and machines as users have them,
// with systemd, pure cgroup v2 and an ordinary user's login session.
//
//	usage: vm [-require] [-run REGEXP] [-count N] [-jobs N] [-raw] [-list] [CASE...]
//
// It prints what testrun prints, one kind of user a case. QEMU emulates (no KVM), so
// nothing is asserted about times in there. DESIGN.md has the table of cases.
package main

import (
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
	"slices"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

const module = "github.com/hutch-sh/hutch"

// tags are those of the binaries, so that the tests see the same code, and share what is compiled.
const tags = "containers_image_openpgp,seccomp,netgo,osusergo"

// options are the command line.
type options struct {
	require bool
	run     string
	count   int
	raw     bool
	jobs    int // processors that machines may keep busy
	report  string
	audit   bool
	cases   []string
}

func main() {
	testtree.Keep()
	var o options
	list := flag.Bool("list", false, "print the cases")
	flag.BoolVar(&o.require, "require", false, "fail when a test named in .ci/must-run does not run")
	flag.StringVar(&o.run, "run", "", "only tests that match this `regexp`")
	flag.IntVar(&o.count, "count", 1, "how often each test runs")
	flag.BoolVar(&o.raw, "raw", false, "print what the guests print as it is, one machine at a time")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "processors that machines may keep busy")
	flag.BoolVar(&o.audit, "audit", false, "run a tenth of the tests along axes that they do not declare")
	flag.StringVar(&o.report, "report", "", "write what ran to this `file`")
	flag.Parse()
	o.cases = flag.Args()
	if *list {
		for _, c := range matrix {
			fmt.Println(c.name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether every test passed and, with require, every must-run test ran.
func run(ctx context.Context, out io.Writer, o options) (ok bool, err error) {
	cases, err := pick(o.cases)
	if err != nil {
		return false, err
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		return false, err
	}
	plan, err := testplan.Read(ctx, root)
	if err != nil {
		return false, err
	}
	plan.Audit = o.audit
	plan.Now.All = plan.Now.All || len(o.cases) > 0 // who names a machine wants all of it
	only, rest, err := testplan.Split(o.run)
	if err != nil {
		return false, err
	}
	if cases = fill(cases, plan, only, rest); len(cases) == 0 {
		return false, fmt.Errorf("no test of these cases matches %q", o.run)
	}
	// A rule for whoever runs the tests is for who runs all of them.
	list := slices.DeleteFunc(plan.Due(), func(r mustrun.Rule) bool { return r.Kinds == nil })
	begin := time.Now()
	p, err := makeParts(ctx, filepath.Join(root, ".cache", "vm"))
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "hutch-test-vm-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	payload, err := makePayload(ctx, root, dir, cases, o)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "made QEMU, kernels, image and payload in %.0f s\n", time.Since(begin).Seconds())
	b := booter{parts: p, payload: payload, out: out, o: o, whole: len(cases) == 1 || o.raw}
	ok, err = b.all(ctx, cases)
	if err != nil {
		return false, err
	}
	b.total.Summary(out)
	ok = b.total.Remembered(out, plan.Unstable) && ok
	if o.audit {
		ok = b.total.Differ(out) && ok
	}
	if o.require && o.run == "" && len(o.cases) == 0 {
		for _, line := range b.total.Unmet(list) {
			fmt.Fprintln(out, "FAIL: must run:", line)
			ok = false
		}
	}
	if o.report != "" {
		err = b.total.Save(o.report)
	}
	return ok, err
}

// makePayload makes the disk with binaries, tests, and what to run of them.
func makePayload(ctx context.Context, root, dir string, cases []vmCase, o options) (string, error) {
	stage := filepath.Join(dir, "stage")
	if err := os.MkdirAll(filepath.Join(stage, "cases"), 0o755); err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(stage, "guest"),
		os.DirFS(filepath.Join(root, "integration", "vm", "guest"))); err != nil {
		return "", err
	}
	if err := testtree.BuildPrograms(ctx, root); err != nil {
		return "", err
	}
	if err := testtree.Stage(root, stage); err != nil {
		return "", err
	}
	if err := buildTests(ctx, root, stage, packages(cases)); err != nil {
		return "", err
	}
	// Installed, it would not be in the folder of unpacked tools.
	if registry, err := exec.LookPath("docker-registry"); err == nil {
		tools := filepath.Join(stage, "src", testtree.Tools)
		if _, err := output(exec.CommandContext(ctx, "install", "-D", "-t", tools, registry)); err != nil {
			return "", err
		}
	}
	if err := makeQuota(ctx, dir, stage); err != nil {
		return "", err
	}
	for _, c := range cases {
		c.args = append(slices.Clone(c.args), fmt.Sprintf("-test.count=%d", o.count))
		text := c.script()
		if o.require {
			text = fmt.Sprintf("export %s=%s\n%s", testenv.RequireVar, testenv.RequireAll, text)
		}
		if err := os.WriteFile(filepath.Join(stage, "cases", c.name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	disk := filepath.Join(dir, "payload.ext4")
	// As large as the files and a bit; sparse.
	return disk, errors.Join(makeDisk(ctx, stage, disk, "1G", "-O", "^has_journal", "-m", "0"), os.RemoveAll(stage))
}

// makeQuota adds a disk with project quotas, which the guest has no program to make.
func makeQuota(ctx context.Context, dir, stage string) error {
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		return err
	}
	return makeDisk(ctx, empty, filepath.Join(stage, "quota.ext4"), "200M", "-O", "quota,project", "-E",
		"quotatype=prjquota")
}

// buildTests compiles the tests of some packages into the payload.
func buildTests(ctx context.Context, root, stage string, folders []string) error {
	for i := range folders {
		folders[i] = "./" + folders[i]
	}
	cmd, err := testtree.BuildTests(ctx, root, stage, tags, false, folders)
	if err != nil {
		return err
	}
	_, err = output(cmd)
	return err
}
