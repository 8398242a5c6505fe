// Vm runs tests in virtual machines: other kernels, and machines as users have them,
// with systemd, pure cgroup v2 and an ordinary user's login session.
//
//	usage: vm [-require] [-run REGEXP] [-count N] [-jobs N] [-raw] [-list] [CASE...]
//
// It prints what testrun prints, one kind of user a case. QEMU emulates (no KVM), so
// nothing is asserted about times in there. DESIGN.md has the table of cases.
package main

import (
	"bytes"
	"cmp"
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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

const module = "github.com/hutch-sh/hutch"

// tags are those of the binaries, and vm for the tests that are for in here alone.
const tags = "containers_image_openpgp,seccomp,vm"

// options are the command line.
type options struct {
	require bool
	run     string
	count   int
	raw     bool
	jobs    int // machines at a time
	cases   []string
}

func main() {
	var o options
	list := flag.Bool("list", false, "print the cases")
	flag.BoolVar(&o.require, "require", false, "fail when a test named in .ci/must-run does not run")
	flag.StringVar(&o.run, "run", "", "only tests that match this `regexp`")
	flag.IntVar(&o.count, "count", 1, "how often each test runs")
	flag.BoolVar(&o.raw, "raw", false, "print what the guests print as it is, one machine at a time")
	// Each has two CPUs and keeps them busy: where it has to share them, they wait for each other's locks.
	flag.IntVar(&o.jobs, "jobs", max(1, runtime.NumCPU()/2), "machines at a time")
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
	list, err := mustrun.ReadFile(root)
	if err != nil {
		return false, err
	}
	// A rule for whoever runs the tests is for who runs all of them.
	list = slices.DeleteFunc(list, func(r mustrun.Rule) bool { return r.Kinds == nil })
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
	ok = true
	var total testreport.Report
	var mu sync.Mutex // of ok, total and out
	var machines errgroup.Group
	machines.SetLimit(o.jobs)
	if o.raw {
		machines.SetLimit(1)
	}
	// The longest first, so that no other waits for it alone.
	cases = slices.Clone(cases)
	slices.SortStableFunc(cases, func(a, b vmCase) int { return cmp.Compare(b.limit, a.limit) })
	for _, c := range cases {
		machines.Go(func() error {
			said := out
			var text bytes.Buffer // in one piece
			if !o.raw && len(cases) > 1 {
				said = &text
			}
			r := testreport.NewReader(said, module, mustrun.VM+c.name)
			begin := time.Now()
			err := c.boot(ctx, p, payload, r, said, o)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				fmt.Fprintf(said, "FAIL: %s%s: %v\n", mustrun.VM, c.name, err)
			}
			release, _ := p.release(c.kernel) // boot has said why there is none
			fmt.Fprintf(said, "     \t%s%s took %.0f s on Linux %s\n", mustrun.VM, c.name, time.Since(begin).Seconds(), release)
			mu.Lock()
			defer mu.Unlock()
			ok = ok && err == nil && !r.Failed
			total.Add(mustrun.Kind(mustrun.VM+c.name), r.Outcomes)
			_, err = out.Write(text.Bytes())
			return err
		})
	}
	if err := machines.Wait(); err != nil {
		return false, err
	}
	total.Summary(out)
	if o.require && o.run == "" {
		for _, line := range total.Unmet(list) {
			fmt.Fprintln(out, "FAIL: must run:", line)
			ok = false
		}
	}
	return ok, nil
}

// makePayload makes the disk with binaries, tests, and what to run of them.
func makePayload(ctx context.Context, root, dir string, cases []vmCase, o options) (string, error) {
	stage := filepath.Join(dir, "stage")
	if err := os.MkdirAll(filepath.Join(stage, "cases"), 0o755); err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(stage, "guest"), os.DirFS(filepath.Join(root, "integration", "vm", "guest"))); err != nil {
		return "", err
	}
	if err := testtree.BuildPrograms(ctx, root); err != nil {
		return "", err
	}
	if err := testtree.Stage(ctx, root, stage, tags, packages(cases)); err != nil {
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
		for i := range c.tests {
			if o.run != "" {
				c.tests[i].run = o.run
			}
			c.tests[i].args = append(c.tests[i].args, fmt.Sprintf("-test.count=%d", o.count))
		}
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
	return makeDisk(ctx, empty, filepath.Join(stage, "quota.ext4"), "200M", "-O", "quota,project", "-E", "quotatype=prjquota")
}

// boot runs one case and reads its tests.
func (c vmCase) boot(ctx context.Context, p parts, payload string, r *testreport.Reader, out io.Writer, o options) error {
	m := machine{parts: p, kernel: c.kernel, payload: payload, console: filepath.Join(p.dir, "console-"+c.name), append: c.commandLine(), limit: c.limit}
	if o.raw {
		return m.run(ctx, out)
	}
	// As it comes, for who wants to know what a machine is at, or was at when it was cut off.
	raw, err := os.Create(filepath.Join(p.dir, "output-"+c.name))
	if err != nil {
		return err
	}
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := m.run(ctx, io.MultiWriter(raw, writer))
		_ = writer.Close() // a pipe's never fails
		ended <- errors.Join(err, raw.Close())
	}()
	seen, readErr := read(reader, r, out, mustrun.VM+c.name)
	_ = reader.Close() // likewise
	err = <-ended
	switch {
	case readErr != nil:
		err = errors.Join(err, readErr)
	case err == nil && seen != len(c.tests):
		err = fmt.Errorf("%d of %d packages ended", seen, len(c.tests))
	}
	return err
}
