package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
)

// A hunt runs tests again and again on a machine that is made hostile to races, until its time is over. It is no part
// of CI: what it finds is a race of the product or of a test, and is fixed as such. There are two ways, in turn:
//
//   - strace holds one system call in every N of hutch, and of all that it starts, up for three milliseconds;
//   - real-time threads take each processor away for up to 60 ms, at random, half of all time: a noisy neighbour.
//
// A tracer shows: a test that looks for one (TracerPid, ptrace, the state of a traced process) fails by it. Read the
// output first.

// huntWay is one way.
type huntWay struct {
	name string
	// begin makes the machine hostile and returns the folder of binaries to test, or "" for the usual one, and how to
	// end it.
	begin func(ctx context.Context, r *runner) (bin string, end func(), err error)
	// spares are kinds of user for whom the way cannot work.
	spares []mustrun.Kind
}

var huntWays = []huntWay{
	{name: "steal", begin: steal},
	// newuidmap has its capabilities from its file, which the kernel does not give to a traced program.
	{name: "strace", begin: hold, spares: []mustrun.Kind{mustrun.SubUID}},
}

// hunted is how often a test failed in one way as one kind of user.
type hunted struct {
	way, name string
	kind      mustrun.Kind
}

// hunt goes on until d is over, prints what failed how often, and reports whether nothing did. The output of each
// failure is kept in .cache/hunt.
func (r *runner) hunt(ctx context.Context, d time.Duration) (bool, error) {
	if os.Geteuid() != 0 {
		return false, errors.New("a hunt needs root, for real-time threads: sudo make hunt")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d, errors.New("the time of the hunt is over"))
	defer cancel()
	kept := filepath.Join(r.root, ".cache", "hunt")
	if err := errors.Join(os.RemoveAll(kept), os.MkdirAll(kept, 0o755)); err != nil {
		return false, err
	}
	failed, ran := map[hunted]int{}, map[hunted]int{}
	rounds := 0
	// Half an hour is not enough for all packages in one way: so each hunt begins with others, and goes from one way to
	// the other at half.
	rand.Shuffle(len(r.jobs), func(i, j int) { r.jobs[i], r.jobs[j] = r.jobs[j], r.jobs[i] })
	for ; ctx.Err() == nil; rounds++ {
		way := huntWays[rounds%len(huntWays)]
		if err := r.huntRound(ctx, way, rounds, kept, ran, failed); err != nil && ctx.Err() == nil {
			return false, err
		}
	}
	tests := 0
	for _, n := range ran {
		tests += n
	}
	fmt.Fprintf(r.out, "\n%d rounds, %d tests run, %d of them differ\n", rounds, tests, len(ran))
	worst := slices.SortedFunc(maps.Keys(failed), func(a, b hunted) int { return cmp.Compare(failed[b], failed[a]) })
	for _, h := range worst {
		fmt.Fprintf(r.out, "FAIL %-7s as %-9s %s: %d of %d\n", h.way, h.kind, h.name, failed[h], ran[h])
	}
	if len(worst) > 0 {
		fmt.Fprintf(r.out, "outputs are in %s\n", kept)
	}
	return len(worst) == 0, nil
}

// huntRound runs half of the jobs in one way: the halves and the ways change with each round, so that four rounds are
// all.
func (r *runner) huntRound(ctx context.Context, way huntWay, round int, kept string, ran, failed map[hunted]int) error {
	bin, end, err := way.begin(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	for i, j := range r.jobs {
		if slices.Contains(way.spares, j.kind) || (i+round/2+round)%2 != 0 || ctx.Err() != nil {
			continue
		}
		var text bytes.Buffer
		j.bin = bin
		read, err := r.huntJob(ctx, &text, j)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // what was cut short says nothing
		}
		note(read.Outcomes, j, way.name, ran, failed)
		if read.Failed {
			name := fmt.Sprintf("%d-%s-%s-%s", round, way.name, j.kind, strings.ReplaceAll(j.pkg, "/", "_"))
			if err := os.WriteFile(filepath.Join(kept, name), text.Bytes(), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(r.out, "round %d: %s failed in %s as %s: %s\n", round, way.name, j.pkg, j.kind,
				filepath.Join(kept, name))
		}
	}
	return nil
}

func (r *runner) huntJob(ctx context.Context, text *bytes.Buffer, j *job) (read *testreport.Reader, err error) {
	if j.isOther() {
		if j.user, err = testuser.New(ctx, j.kind); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, j.user.Close()) }()
	}
	read = testreport.NewReader(text, module, string(j.kind))
	for _, args := range j.runs() {
		one, _, err := r.binary(ctx, text, j, args...)
		if err != nil {
			return nil, err
		}
		read.Outcomes, read.Failed = append(read.Outcomes, one.Outcomes...), read.Failed || one.Failed
	}
	return read, nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func note(outcomes []testreport.Outcome, j *job, way string, ran, failed map[hunted]int) {
	for _, o := range outcomes {
		h := hunted{way, o.Name, j.kind}
		ran[h]++
		if o.Action == "fail" {
			failed[h]++
		}
	}
}

// hold makes a folder of programs that start the real ones under strace.
func hold(_ context.Context, r *runner) (string, func(), error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return "", nil, fmt.Errorf("%w: apt-get install strace", err)
	}
	dir, err := os.MkdirTemp(r.dir, "strace-")
	if err != nil {
		return "", nil, err
	}
	end := func() { _ = os.RemoveAll(dir) } // a folder of the run's own folder, which goes in the end
	n := []int{29, 41, 97}[rand.IntN(3)]
	bin := filepath.Join(r.root, "bin")
	if staged := filepath.Join(r.dir, "src", "bin"); isDir(staged) {
		bin = staged // which all users reach
	}
	names, err := filepath.Glob(filepath.Join(bin, "*"))
	if err != nil {
		return "", end, err
	}
	for _, real := range names {
		name := filepath.Base(real)
		if name != "hutch" && name != "hutchd" {
			err = errors.Join(err, os.Symlink(real, filepath.Join(dir, name)))
			continue
		}
		// -D: the tracer is a grandchild, so that the process is whose the caller takes it for. Children are followed.
		script := fmt.Sprintf("#!/bin/sh\nexec strace -D -f -qqq -o /dev/null -e trace=all -e inject=all:delay_enter=3000:when=%d+%d %s \"$@\"\n",
			1+rand.IntN(n), n, real)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir, end, errors.Join(err, os.Chmod(dir, 0o755))
}

// steal keeps a real-time thread on each processor that takes it away at random.
func steal(context.Context, *runner) (string, func(), error) {
	done := make(chan struct{})
	started := make(chan error, runtime.NumCPU())
	var wg sync.WaitGroup
	for cpu := range runtime.NumCPU() {
		wg.Go(func() { stealOne(cpu, started, done) })
	}
	end := func() { close(done); wg.Wait() }
	var errs []error
	for range runtime.NumCPU() {
		errs = append(errs, <-started)
	}
	if err := errors.Join(errs...); err != nil {
		end()
		return "", nil, err
	}
	return "", end, nil
}

// longestTheft is the longest time for which a processor is taken away.
const longestTheft = 60 * time.Millisecond

func stealOne(cpu int, started chan<- error, done <-chan struct{}) {
	runtime.LockOSThread() // and never given back: the thread ends, with its priority
	var set unix.CPUSet
	set.Set(cpu)
	err := unix.SchedSetaffinity(0, &set)
	if err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
			Priority: 10}, 0)
	}
	if err != nil {
		started <- fmt.Errorf("become a real-time thread of processor %d: %w", cpu, err)
		return
	}
	started <- nil
	for {
		for end := time.Now().Add(rand.N(longestTheft)); time.Now().Before(end); {
		}
		select {
		case <-done:
			return
		case <-time.After(rand.N(longestTheft)):
		}
	}
}
