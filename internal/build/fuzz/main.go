// Fuzz runs the fuzz targets of the module as `make fuzz` does: each one for an equal part of the time, with the
// corpora of earlier runs, which it keeps in .cache/fuzz. It prints how many inputs each target tried and how
// many that is a second, and in the end which targets failed, with the file of the input, and which were slow.
//
//	usage: fuzz [-for D] [-run REGEXP] [-parallel N]
//
// A target should make 1000 executions a second. One that cannot says so in its doc comment, and why:
//
//	// Rate: 100/s, because ...
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// tags are those of the binaries, so that the targets see the same code.
const tags = "containers_image_openpgp,seccomp"

// slice is the shortest time in which a target does more than start. Where there is less for
// each, as many as fit are run, and the next run goes on with the others.
const slice = 10 * time.Second

type options struct {
	time     time.Duration
	run      string
	parallel int
}

func main() {
	var o options
	flag.DurationVar(&o.time, "for", 30*time.Minute, "how long to fuzz; building the targets comes on top of that")
	flag.StringVar(&o.run, "run", "", "only targets whose FOLDER.FuzzNAME matches this `regexp`")
	flag.IntVar(&o.parallel, "parallel", runtime.NumCPU(), "processes that run a target at a time")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "fuzz: %q: there are only flags; targets are chosen by -run\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether no target failed. An error means that they could not be run.
func run(ctx context.Context, out io.Writer, o options) (bool, error) {
	keep, err := regexp.Compile(o.run)
	if err != nil {
		return false, fmt.Errorf("-run %q: %w", o.run, err)
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		return false, err
	}
	targets, err := list(ctx, root, keep)
	if err != nil {
		return false, err
	}
	if len(targets) == 0 {
		return false, fmt.Errorf("-run %q: no target has such a name", o.run)
	}
	w := &workshop{root: root, dir: filepath.Join(root, ".cache", "fuzz"), parallel: o.parallel}
	if err := w.open(); err != nil {
		return false, err
	}
	defer w.close()
	begin, each := w.turn(targets, o.time)
	fmt.Fprintf(out, "%d targets, %v each\n%s\n", len(begin), each, header)
	results := make([]result, 0, len(begin))
	for _, t := range begin {
		r, err := w.fuzz(ctx, t, each)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return false, err
		}
		fmt.Fprintln(out, r.line())
		results = append(results, r)
		w.done(t)
	}
	return summary(out, results), context.Cause(ctx)
}

// header is over the lines of results.
var header = fmt.Sprintf("%9s %9s %9s %6s %6s  %s", "execs", "per s", "per CPU s", "new", "corpus", "target")

// line is what one target did.
func (r *result) line() string {
	s := fmt.Sprintf("%9d %9.0f %9.0f %6d %6d  %s", r.execs, r.perSecond(), r.perCPUSecond(), r.found, r.corpus,
		r.target)
	if !r.failed {
		return s
	}
	return s + "\nFAIL: " + r.target.String() + "\n    " + strings.ReplaceAll(strings.TrimSpace(r.said), "\n", "\n    ")
}

// summary prints what failed and what is slow, and reports whether nothing failed.
func summary(out io.Writer, results []result) bool {
	var execs, failed, slow int
	for i := range results {
		execs += results[i].execs
	}
	fmt.Fprintf(out, "\n%d targets, %d executions\n", len(results), execs)
	for i := range results {
		if r := &results[i]; r.failed {
			failed++
			fmt.Fprintf(out, "FAIL: %s: %s\n", r.target, r.why())
		}
	}
	for i := range results {
		r := &results[i]
		switch rate := r.perSecond(); {
		case rate >= wanted || r.failed:
			continue
		case rate >= float64(r.target.rate):
			fmt.Fprintf(out, "under %d/s, as it says: %s makes %.0f, because %s\n", wanted, r.target, rate,
				r.target.because)
		default:
			slow++
			fmt.Fprintf(out, "SLOW: %s makes %.0f/s (%.0f in a second of CPU time), want %d\n", r.target, rate,
				r.perCPUSecond(), r.target.rate)
		}
	}
	fmt.Fprintf(out, "%d failed, %d slow\n", failed, slow)
	return failed == 0
}
