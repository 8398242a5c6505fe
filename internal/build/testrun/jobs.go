package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hutch-sh/hutch/internal/build/testplan"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/build/testtree"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
)

// runner runs the compiled tests of one run.
type runner struct {
	out  io.Writer
	root string // the module's
	dir  string // what testtree filled
	o    options
	plan testplan.Plan
	jobs []*job

	mu   sync.Mutex // guards out
	late sync.Mutex // held by whoever runs late tests again: one at a time makes the machine busy
}

// job is one package's tests as one kind of user.
type job struct {
	kind    mustrun.Kind
	pkg     string
	run     string         // -test.run; empty: nothing
	short   string         // -test.run of a further run, with -short; empty: nothing
	weight  int            // how long it may take, beside other jobs
	user    *testuser.User // while it runs, if it is another one
	bin     string         // folder of the binaries to test; empty: those of the module
	outcome []testreport.Outcome
	cpu     time.Duration
	failed  bool
}

// plans makes the jobs: with one kind of user all tests, else those of the plan.
func (r *runner) plans(folders []string) error {
	top, rest, err := testplan.Split(r.o.run)
	if err != nil {
		return err
	}
	kinds := r.o.kinds()
	limited, pattern, _ := strings.Cut(r.o.only, "=")
	limit, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	all := top
	for _, pkg := range folders {
		if top = all; pkg == limited {
			top = limit
		}
		for _, k := range kinds {
			j := &job{kind: k, pkg: pkg}
			tests := r.plan.Here(pkg, top)
			if len(kinds) > 1 {
				tests = r.plan.Selected(pkg, k, top)
			}
			if len(tests) == 0 {
				continue
			}
			j.run, j.weight = testplan.Pattern(testplan.Names(tests), rest), testplan.Weight(tests)
			if r.o.run == "" && r.o.hunt == 0 {
				j.halve(tests, func(t testplan.Test) bool { return r.o.race || r.plan.Short(t, k) && t.Pkg != alone })
			}
			r.jobs = append(r.jobs, j)
		}
	}
	// The longest first, so that no other waits for it alone.
	slices.SortStableFunc(r.jobs, func(a, b *job) int { return cmp.Compare(b.weight, a.weight) })
	return nil
}

// halve makes two runs of the job, if it takes two: of the tests that make all their rounds, and of those that are
// short.
func (j *job) halve(tests []testplan.Test, isShort func(testplan.Test) bool) {
	var whole, short []testplan.Test
	for _, t := range tests {
		if isShort(t) {
			short = append(short, t)
		} else {
			whole = append(whole, t)
		}
	}
	if j.run = ""; len(whole) > 0 {
		j.run = testplan.Pattern(testplan.Names(whole), "")
	}
	if len(short) > 0 {
		j.short = testplan.Pattern(testplan.Names(short), "")
	}
}

// prepare has a test make the image that the tests of several packages take, before there are several.
func (r *runner) prepare(ctx context.Context) error {
	const pkg, test = "integration/image", "^TestDebianIsMade$"
	if !slices.ContainsFunc(r.jobs, func(j *job) bool { return strings.HasPrefix(j.pkg, "integration/") }) {
		return nil
	}
	if _, err := os.Stat(testtree.Binary(r.dir, pkg)); err != nil {
		return nil // without that package its image is made by whoever wants it
	}
	read, _, err := r.binary(ctx, r.out, &job{kind: testenv.CurrentKind(), pkg: pkg}, "-test.run="+test)
	if err == nil && read.Failed {
		err = fmt.Errorf("%s.%s failed", pkg, test)
	}
	return err
}

// stage copies the tree where ordinary users can read it, if there are jobs for them: the checkout may well lie in
// root's home.
func (r *runner) stage() error {
	others := slices.DeleteFunc(slices.Clone(r.jobs), func(j *job) bool { return !j.isOther() })
	var more []string
	for pkg, folder := range installed {
		if slices.ContainsFunc(others, func(j *job) bool { return j.pkg == pkg }) {
			more = append(more, folder)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return testtree.Stage(r.root, r.dir, more...)
}

// isOther reports whether the job runs as another user than this process, one that is made for it alone: what the
// kernel counts for each user (processes, keyrings, inotify instances) no other job shares then.
func (j *job) isOther() bool { return os.Geteuid() == 0 && j.kind != mustrun.Root }

// installed has the packages whose tests run what was installed for them, and where that is.
var installed = map[string]string{"integration/obeyed": testtree.Obeyed, "integration/sdk": testtree.TypeScript,
	"integration/agents": testtree.Agents}

// alone is the package whose tests take the whole machine, or look at it.
const alone = "integration/alone"

// all runs the jobs, some at a time and what wants the machine for itself in the end, and reports whether all tests
// passed.
func (r *runner) all(ctx context.Context) (bool, error) {
	var last []*job
	var group errgroup.Group
	group.SetLimit(max(1, r.o.jobs))
	for _, j := range r.jobs {
		if j.pkg == alone {
			last = append(last, j)
			continue
		}
		group.Go(func() error { return r.whole(ctx, j) })
	}
	err := group.Wait()
	for _, j := range last {
		if err == nil {
			err = r.whole(ctx, j)
		}
	}
	return !slices.ContainsFunc(r.jobs, func(j *job) bool { return j.failed }), err
}

// whole runs a job and prints what it says in one piece.
func (r *runner) whole(ctx context.Context, j *job) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var text bytes.Buffer
	err := r.job(ctx, &text, j)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, wrote := text.WriteTo(r.out)
	return errors.Join(err, wrote)
}

// job runs one job, and again what was late in it.
func (r *runner) job(ctx context.Context, out io.Writer, j *job) (failed error) {
	begin := time.Now()
	if j.isOther() {
		var err error
		if j.user, err = testuser.New(ctx, j.kind); err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, j.user.Close()) }()
	}
	for _, args := range j.runs() {
		read, cpu, err := r.binary(ctx, out, j, args...)
		j.outcome, j.cpu = append(j.outcome, read.Outcomes...), j.cpu+cpu
		j.failed = j.failed || read.Failed
		if err != nil {
			return err
		}
	}
	if j.failed {
		j.failed = !r.again(ctx, out, j)
	}
	state := "ok  "
	if j.failed {
		state = "FAIL"
	}
	fmt.Fprintf(out, "%s\t%s/%s\t%.1fs\t%.1f CPU s%s\n", state, module, j.pkg, time.Since(begin).
		Seconds(), j.cpu.Seconds(), r.label(j))
	return nil
}

// runs are the arguments of the runs of its binary that a job takes.
func (j *job) runs() [][]string {
	var runs [][]string
	if j.run != "" {
		runs = append(runs, []string{"-test.run=" + j.run})
	}
	if j.short != "" {
		runs = append(runs, []string{"-test.short", "-test.run=" + j.short})
	}
	return runs
}

// label is the kind of user behind a package's line, where there are several.
func (r *runner) label(j *job) string {
	if len(r.o.kinds()) == 1 {
		return ""
	}
	return "\t(" + string(j.kind) + ")"
}

// binary runs the compiled tests of a job with some arguments more, and reads its output through test2json, as the go
// command would. It returns the CPU time that they, and what they have waited for, took.
func (r *runner) binary(ctx context.Context, out io.Writer, j *job, args ...string) (*testreport.Reader, time.Duration,
	error) {
	read := testreport.NewReader(out, module, string(j.kind))
	args = append([]string{
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + r.o.timeout.String(), "-test.parallel=" +
			strconv.Itoa(r.o.parallel),
	}, args...)
	test := exec.CommandContext(ctx, testtree.Binary(r.dir, j.pkg), args...)
	interruptible(test)
	test.Dir = filepath.Join(r.root, filepath.FromSlash(j.pkg))
	if j.bin != "" {
		test.Env = append(os.Environ(), testenv.BinVar+"="+j.bin)
	}
	if u := j.user; u != nil {
		src := filepath.Join(r.dir, "src")
		bin := cmp.Or(j.bin, filepath.Join(src, "bin"))
		test.Dir = filepath.Join(src, filepath.FromSlash(j.pkg))
		path := []string{bin, "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin",
			filepath.Join(src, testtree.Tools)}
		u.Run(test, "PATH="+strings.Join(path, ":"), testenv.BinVar+"="+bin, testenv.RequireVar+"="+
			os.Getenv(testenv.RequireVar), testenv.MatrixVar+"="+os.Getenv(testenv.MatrixVar))
	}
	convert := exec.Command("go", "tool", "test2json", "-t", "-p", module+"/"+j.pkg)
	convert.Stderr = os.Stderr
	pipe, err := test.StdoutPipe()
	if err != nil {
		return read, 0, err
	}
	test.Stderr = test.Stdout
	convert.Stdin = pipe
	if err := test.Start(); err != nil {
		return read, 0, fmt.Errorf("%s as %s: %w", j.pkg, j.kind, err)
	}
	streamErr := stream(convert, read)
	err = test.Wait()
	read.Exit(module+"/"+j.pkg, test.ProcessState.ExitCode())
	if err != nil {
		fmt.Fprintf(out, "%s as %s: %v\n", j.pkg, j.kind, err)
	}
	return read, test.ProcessState.UserTime() + test.ProcessState.SystemTime(), streamErr
}

// report gathers how all tests ended.
func (r *runner) report() *testreport.Report {
	var total testreport.Report
	for _, k := range r.o.kinds() {
		for _, j := range r.jobs {
			if j.kind == k {
				total.Add(k, j.outcome)
				total.Spent(k, j.cpu)
			}
		}
	}
	return &total
}
