package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// callsPerRun is how many calls one run makes, one after the other on a warm
	// connection. Its time is the median of theirs: processes that ran just before
	// have emptied the caches.
	callsPerRun = 25
	// tailCalls is how many calls make a p99.
	tailCalls = 100
	// flood is how many calls the flooding client keeps under way: as many as one
	// connection may have.
	flood = 256
)

// dialShared connects this process to the shared daemon, until the end of the
// benchmark.
func (h *Host) dialShared(ctx context.Context) (*client.Client, error) {
	if err := h.needOwnDaemon(); err != nil {
		return nil, err
	}
	if _, err := h.sharedDaemon(ctx); err != nil {
		return nil, err
	}
	return h.dial(ctx, "state")
}

// liveSandbox is a connection to the shared daemon and a sandbox of the host image.
func (h *Host) liveSandbox(ctx context.Context) (*client.Client, string, error) {
	c, err := h.dialShared(ctx)
	if err != nil {
		return nil, "", err
	}
	sb, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	return c, sb.ID, err
}

// call runs /bin/true once and returns the time from the call to the decoded reply.
func call(ctx context.Context, c *client.Client, sandbox string, stdio *client.Stdio) (time.Duration, error) {
	start := time.Now()
	res, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sandbox, Argv: []string{"/bin/true"}}, stdio, nil)
	took := time.Since(start)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", res.ExitCode)
	}
	return took, err
}

// calls are n calls in a row, sorted by their time.
func calls(ctx context.Context, n int, one func(context.Context) (time.Duration, error)) ([]time.Duration, error) {
	times := make([]time.Duration, n)
	for i := range times {
		var err error
		if times[i], err = one(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(times)
	return times, nil
}

func setupHutchCall(ctx context.Context, h *Host) (*Prepared, error) {
	return h.prepareCalls(ctx, nil)
}

func setupHutchCallPassed(ctx context.Context, h *Host) (*Prepared, error) {
	// One pipe for all, which nobody reads because nobody writes, and /dev/null.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	h.undo.Add(null.Close)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	h.undo.Add(func() error { return errors.Join(r.Close(), w.Close()) })
	return h.prepareCalls(ctx, &client.Stdio{Stdin: null, Stdout: w, Stderr: w})
}

func (h *Host) prepareCalls(ctx context.Context, stdio *client.Stdio) (*Prepared, error) {
	c, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: "exec.run {argv: [/bin/true]} by the Go client",
		Note:    fmt.Sprintf("the median of %d calls in a row", callsPerRun),
		Run: func(ctx context.Context) (Sample, error) {
			times, err := calls(ctx, callsPerRun,
				func(ctx context.Context) (time.Duration, error) { return call(ctx, c, sandbox, stdio) })
			if err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)/2]}, nil
		},
	}, nil
}

func setupHutchTail(ctx context.Context, h *Host) (*Prepared, error) {
	return h.prepareTail(ctx, func(context.Context) func() error { return func() error { return nil } })
}

func setupHutchTailFlooded(ctx context.Context, h *Host) (*Prepared, error) {
	flooder, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	return h.prepareTail(ctx, func(ctx context.Context) (stop func() error) { return flooding(ctx, flooder, sandbox) })
}

// prepareTail measures the p99 of calls, beside what start has begun.
func (h *Host) prepareTail(ctx context.Context, start func(context.Context) (stop func() error)) (*Prepared, error) {
	c, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: "exec.run {argv: [/bin/true]} by the Go client",
		Note:    fmt.Sprintf("the p99 of %d calls in a row", tailCalls),
		Run: func(ctx context.Context) (Sample, error) {
			stop := start(ctx)
			times, err := calls(ctx, tailCalls,
				func(ctx context.Context) (time.Duration, error) { return call(ctx, c, sandbox, nil) })
			if err = errors.Join(err, stop()); err != nil {
				return Sample{}, err
			}
			return Sample{Wall: times[len(times)*99/100]}, nil
		},
	}, nil
}

// flooding keeps as many calls under way as a connection may have, until stop, which
// waits for the last of them.
func flooding(ctx context.Context, c *client.Client, sandbox string) (stop func() error) {
	done := make(chan struct{})
	errs := make([]error, flood)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil {
				select {
				case <-done:
					return
				default:
					_, errs[i] = call(ctx, c, sandbox, nil)
				}
			}
		})
	}
	return func() error {
		close(done)
		wg.Wait()
		return errors.Join(errs...)
	}
}
