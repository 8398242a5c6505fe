package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// attachBytes is the output of one run. Long enough for the rate to settle: of
	// 1 GiB each part takes an eighth of the whole.
	attachBytes = 128 << 20
	// attachStep is written at a time, three of them ahead of the reader. A command
	// never waits for who reads its spool, so without a pace of its own it would be
	// measured how fast bytes are dropped.
	attachStep  = 8 << 20
	attachAhead = 3
)

// setupHutchAttach measures the way of a command's output through pipe, spool,
// daemon and socket to a Go client.
func setupHutchAttach(ctx context.Context, h *Host) (*Prepared, error) {
	c, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("while read x; do dd if=/dev/zero bs=1M count=%d status=none; done", attachStep>>20)
	ex, err := c.ExecStart(ctx, api.ExecParams{Sandbox: sandbox, Command: line}, nil)
	if err != nil {
		return nil, err
	}
	a, err := c.Attach(ctx, ex.Exec, client.AttachOptions{})
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Command: line + "   (exec.attach by the Go client)",
		Note:    fmt.Sprintf("%d MB a run: MB/s are %d000 / ms", attachBytes/1_000_000, attachBytes/1_000_000),
		Run:     func(ctx context.Context) (Sample, error) { return attachOnce(ctx, c, a) },
	}, nil
}

// attachOnce reads attachBytes.
func attachOnce(ctx context.Context, c *client.Client, a *client.Attachment) (Sample, error) {
	start := time.Now()
	failed := make(chan error, attachBytes/attachStep)
	begun := 0
	for got := 0; got < attachBytes; {
		for ; begun < min(got/attachStep+attachAhead, attachBytes/attachStep); begun++ {
			go func() {
				failed <- c.ExecWrite(ctx, api.WriteParams{Exec: a.Exec(), Data: "\n"})
			}()
		}
		o, err := a.Next(ctx)
		if err == nil {
			err = o.Gap()
		}
		if err != nil {
			return Sample{}, err
		}
		got += len(o.Data)
	}
	wall := time.Since(start)
	for range begun {
		if err := <-failed; err != nil {
			return Sample{}, err
		}
	}
	return Sample{Wall: wall}, nil
}
