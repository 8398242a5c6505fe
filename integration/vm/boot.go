package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/hutch-sh/hutch/internal/build/busy"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// booter boots machines and gathers how their tests ended.
type booter struct {
	parts   parts
	payload string
	o       options
	whole   bool // what a machine prints is shown as it comes

	mu    sync.Mutex // guards what follows
	out   io.Writer
	total testreport.Report
	ok    bool
}

// all boots all cases, some at a time, and reports whether all tests passed.
func (b *booter) all(ctx context.Context, cases []vmCase) (bool, error) {
	b.ok = true
	// Each machine has two CPUs. With several tests it keeps them busy, and where it has to share them, they wait for
	// each other's locks; with one test at a time one is idle.
	var machines errgroup.Group
	most := int64(max(1, b.o.jobs))
	room := semaphore.NewWeighted(most)
	// The longest first, so that no other waits for it alone.
	cases = slices.Clone(cases)
	slices.SortStableFunc(cases, func(a, b vmCase) int { return cmp.Compare(b.limit, a.limit) })
	var err error
	for _, c := range cases {
		weight := min(most, c.busy())
		if b.o.raw {
			weight = most
		}
		if err = room.Acquire(ctx, weight); err != nil {
			break
		}
		machines.Go(func() error {
			defer room.Release(weight)
			return b.one(ctx, c)
		})
	}
	err = errors.Join(err, machines.Wait())
	return b.ok, err
}

// one boots a case, and again for what was late in it.
func (b *booter) one(ctx context.Context, c vmCase) error {
	said := b.out
	var text bytes.Buffer // in one piece
	if !b.whole {
		said = &text
	}
	r := testreport.NewReader(said, module, string(c.kind()))
	begin := time.Now()
	err := b.boot(ctx, c, r, said, "", len(c.tests))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := r.Failed
	if err != nil {
		fmt.Fprintf(said, "FAIL: %s: %v\n", c.kind(), err)
	} else if failed {
		failed = !b.again(ctx, c, r, said)
	}
	release, _ := b.parts.release(c.kernel) // boot has said why there is none
	fmt.Fprintf(said, "     \t%s took %.0f s on Linux %s\n", c.kind(), time.Since(begin).Seconds(), release)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ok = b.ok && err == nil && !failed
	b.total.Add(c.kind(), r.Outcomes)
	_, err = b.out.Write(text.Bytes())
	return err
}

// again boots the case for each late test twice: for two runs of it, and for one beside busy threads. It reports
// whether nothing failed for good. See testrun's unstable.go for the rules.
func (b *booter) again(ctx context.Context, c vmCase, r *testreport.Reader, out io.Writer) bool {
	late, all := testreport.Late(r.Outcomes)
	if len(late) == 0 || !all {
		return false
	}
	load := busy.Load()
	stable := true
	for _, name := range late {
		pkg := packageOf(r.Outcomes, name)
		var text bytes.Buffer
		passed := true
		for _, round := range []struct{ threads, count int }{{load, 1}, {0, 2}} {
			fmt.Fprintf(&text, "--- again, %d times, beside %d busy threads: %s\n", round.count, round.threads, name)
			again := testreport.NewReader(&text, module, string(c.kind()))
			stop := busy.Threads(round.threads)
			err := b.boot(ctx, c, again, &text, fmt.Sprintf(" vmtest.again=%s:%s:%d", pkg, name, round.count), 1)
			stop()
			if err != nil || again.Failed {
				passed = false
				break
			}
		}
		full := mustrun.Name(pkg, name)
		if passed {
			testreport.MarkUnstable(r.Outcomes, full, text.String())
			continue
		}
		fmt.Fprintf(out, "%sFAIL: %s failed again\n", text.String(), full)
		stable = false
	}
	return stable
}

// packageOf is the folder of the package of a top-level test.
func packageOf(outcomes []testreport.Outcome, name string) string {
	for _, o := range outcomes {
		if pkg, ok := strings.CutSuffix(o.Name, "."+name); ok {
			return pkg
		}
	}
	return ""
}

// boot runs one case and reads its tests, of want packages. more is said on the kernel's command line.
func (b *booter) boot(ctx context.Context, c vmCase, r *testreport.Reader, out io.Writer, more string, want int) error {
	m := machine{parts: b.parts, kernel: c.kernel, payload: b.payload, console: filepath.Join(b.parts.dir, "console-"+
		c.name), append: c.commandLine() + more, limit: c.limit}
	if b.o.raw {
		return m.run(ctx, out)
	}
	// As it comes, for who wants to know what a machine is at, or was at when it was cut off.
	raw, err := os.Create(filepath.Join(b.parts.dir, "output-"+c.name))
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
	seen, readErr := read(reader, r, out, string(c.kind()))
	_ = reader.Close() // likewise
	err = <-ended
	switch {
	case readErr != nil:
		err = errors.Join(err, readErr)
	case err == nil && seen != want:
		err = fmt.Errorf("%d of %d packages ended", seen, want)
	}
	return err
}
