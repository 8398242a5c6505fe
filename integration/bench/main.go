// Bench measures hutch beside its peers: whole processes, from argv to exit, in
// interleaved rounds.
//
//	usage: bench [-rounds N] [-warmup N] [-limit D] [-run REGEXP] [-baseline NAME]
//	             [-user UID] [-hutch FOLDER] [-json FILE] [-svg FOLDER] [-memory] [-list]
//
// It exits with 1 when a subject gives a wrong result or leaves something behind,
// never because of a time. What this machine cannot run is listed with the reason.
// docs/performance.md says how to read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	rounds, warmup int
	limit          time.Duration
	run            *regexp.Regexp
	baseline       string
	uid            int
	hutch          string
	json, svg      string
	list           bool
	memory         bool
}

func parseOptions() (o options, err error) {
	pattern := ""
	flag.IntVar(&o.rounds, "rounds", 100, "counted rounds at most")
	flag.IntVar(&o.warmup, "warmup", 5, "rounds before them that do not count")
	flag.DurationVar(&o.limit, "limit", 50*time.Second, "start no round after this time")
	flag.StringVar(&pattern, "run", "", "only subjects that match this `regexp`")
	flag.StringVar(&o.baseline, "baseline", "bwrap", "the `subject` that ratios compare with")
	flag.IntVar(&o.uid, "user", -1, "as root: run the subjects as this `uid`")
	flag.StringVar(&o.hutch, "hutch", "", "`folder` of hutch's binaries (bin of this checkout)")
	flag.StringVar(&o.json, "json", "", "write the report with all samples to this `file` too")
	flag.StringVar(&o.svg, "svg", "", "draw charts of the report into this `folder` too")
	flag.BoolVar(&o.memory, "memory", false,
		"measure only the memory of idle sandboxes, which a run of all subjects does too")
	flag.BoolVar(&o.list, "list", false, "list the subjects and exit")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.rounds < 1 || o.warmup < 0 {
		return o, fmt.Errorf("-rounds %d -warmup %d: at least 1 and 0", o.rounds, o.warmup)
	}
	o.run, err = regexp.Compile(pattern)
	return o, err
}

func main() {
	o, err := parseOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = bench(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// choose picks the subjects of -run, and the baseline with them.
func choose(o options) ([]Subject, error) {
	all := subjects()
	named := func(s Subject) bool { return s.Name == o.baseline }
	if !slices.ContainsFunc(all, named) {
		return nil, fmt.Errorf("-baseline %s: no such subject; -list shows them", o.baseline)
	}
	chosen := slices.DeleteFunc(all, func(s Subject) bool {
		return !named(s) && (!o.run.MatchString(s.Name) || s.Named && o.run.String() == "" && !o.list)
	})
	if len(chosen) == 1 && !o.run.MatchString(o.baseline) {
		return nil, fmt.Errorf("-run %s matches no subject; -list shows them", o.run)
	}
	return chosen, nil
}

func bench(ctx context.Context, o options) (err error) {
	chosen, err := choose(o)
	if err != nil {
		return err
	}
	if o.list {
		for _, s := range chosen {
			fmt.Printf("%-18s %s\n", s.Name, s.About)
		}
		return nil
	}
	start := time.Now()
	if o.hutch == "" {
		root, err := moduleRoot()
		if err != nil {
			return err
		}
		o.hutch = filepath.Join(root, "bin")
	}
	h, err := newHost(o.hutch, o.uid)
	if err != nil {
		return err
	}
	if o.memory {
		m, err := h.memory(ctx)
		if err == nil {
			m.Network, err = h.networkMemory(ctx)
		}
		if err == nil {
			fmt.Println(m)
		}
		return errors.Join(err, h.close())
	}
	report, err := h.report(ctx, o, chosen, start.Add(o.limit))
	// What was left behind is told after the table, and fails the run as well.
	err = errors.Join(err, h.close())
	if report == nil {
		return err
	}
	fmt.Print(report)
	if o.json != "" {
		text, e := report.json()
		err = errors.Join(err, e, os.WriteFile(o.json, text, 0o644))
	}
	if o.svg != "" {
		err = errors.Join(err, report.writeCharts(o.svg))
	}
	if report.failed() {
		err = errors.Join(err, errors.New("wrong results"))
	}
	return err
}

// report sets up, measures and sums up. It has no report when it was interrupted.
func (h *Host) report(ctx context.Context, o options, chosen []Subject, until time.Time) (*Report, error) {
	r := &Report{Time: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), UID: h.uid, Warmup: o.warmup,
		Baseline: o.baseline}
	entries := prepare(ctx, h, chosen)
	var err error
	if r.Rounds, err = measure(ctx, entries, plan{warmup: o.warmup, rounds: o.rounds, until: until}); err != nil {
		return nil, fmt.Errorf("interrupted: %w", err)
	}
	r.Machine.Load1After = load1()
	r.Results = results(entries, o.baseline)
	var missing *Unavailable
	if o.run.String() == "" {
		if r.Memory, err = h.memory(ctx); err != nil && !errors.As(err, &missing) {
			return nil, fmt.Errorf("memory of idle sandboxes: %w", err)
		}
	}
	return r, nil
}
