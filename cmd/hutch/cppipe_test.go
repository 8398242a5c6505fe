package main

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPullThroughHostile: a sandbox that keeps the pipe when the call is over, or the
// call when nobody reads, holds up neither the user who interrupts nor an error.
func TestPullThroughHostile(t *testing.T) {
	var kept int
	called := make(chan struct{})
	keep := func(_ context.Context, w *os.File) error {
		defer close(called)
		rc, err := w.SyscallConn()
		if err != nil {
			return err
		}
		return rc.Control(func(fd uintptr) { kept, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-called
		cancel(stop)
	}()
	drain := func(r io.Reader) error {
		_, err := copyAll(io.Discard, r)
		return err
	}
	if err := pullThrough(ctx, keep, drain); !errors.Is(err, stop) {
		t.Errorf("a pipe that is kept: %v", err)
	}
	_ = unix.Close(kept)

	hang := func(ctx context.Context, _ *os.File) error {
		<-ctx.Done()
		return ctx.Err()
	}
	refused := errors.New("refused")
	if err := pullThrough(t.Context(), hang, func(io.Reader) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a call that does not end: %v", err)
	}
}
