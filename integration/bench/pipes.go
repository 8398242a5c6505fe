package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// pipeBytes is the output of one run: so much that the start of the command is lost in
// it. Which CPUs the scheduler gives writer and reader decides most of the rest.
const pipeBytes = 1 << 30

// writer is what writes it.
var writer = []string{"dd", "if=/dev/zero", "bs=128k", fmt.Sprintf("count=%d", pipeBytes/(128<<10)), "status=none"}

func setupPipe(_ context.Context, h *Host) (*Prepared, error) {
	path, err := exec.LookPath(writer[0])
	if err != nil {
		return nil, err
	}
	return h.preparePipe(shellLine(writer)+" | reader", func(ctx context.Context, w *os.File) error {
		cmd := exec.CommandContext(ctx, path, writer[1:]...)
		cmd.Stdout = w
		return cmd.Run()
	})
}

func setupHutchPipe(ctx context.Context, h *Host) (*Prepared, error) {
	c, sandbox, err := h.liveSandbox(ctx)
	if err != nil {
		return nil, err
	}
	return h.preparePipe("exec.run of "+shellLine(writer)+" with a pipe for stdout",
		func(ctx context.Context, w *os.File) error {
			res, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sandbox, Argv: writer}, &client.Stdio{Stdout: w}, nil)
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("exit code %d", res.ExitCode)
			}
			return err
		})
}

// preparePipe measures how long what write lets write takes through a pipe that this
// process reads.
func (h *Host) preparePipe(command string, write func(ctx context.Context, w *os.File) error) (*Prepared, error) {
	buf := make([]byte, 128<<10)
	return &Prepared{
		Command: command,
		Note:    fmt.Sprintf("%d MB a run: MB/s are %d000 / ms", pipeBytes/1_000_000, pipeBytes/1_000_000),
		Run: func(ctx context.Context) (Sample, error) {
			start := time.Now()
			r, w, err := os.Pipe()
			if err != nil {
				return Sample{}, err
			}
			defer r.Close()
			written := make(chan error, 1)
			go func() { written <- errors.Join(write(ctx, w), w.Close()) }()
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
			err = errors.Join(err, <-written)
			if err == nil && n != pipeBytes {
				err = fmt.Errorf("%d bytes came, not %d", n, pipeBytes)
			}
			return Sample{Wall: time.Since(start)}, err
		},
	}, nil
}
