package main

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// copyBuffer is the size of the pipes and of the pieces that go through them.
const copyBuffer = 1 << 20

// copyPipe is a pipe into or out of a sandbox. It is hutch's own: the caller's files
// never cross, not even a pipe, whose flags others share.
func copyPipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	rc, err := w.SyscallConn()
	if err == nil {
		// A larger pipe is only faster, and the user's share of pages may be used up.
		err = rc.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, copyBuffer) })
	}
	return r, w, err
}

// pushThrough makes a call that reads from a pipe what feed writes. When feed
// fails the call is cancelled, and only then is the pipe closed: to the sandbox its
// end would be the end of the data.
func pushThrough(ctx context.Context, feed func(w io.Writer) error,
	call func(ctx context.Context, r *os.File) error) error {
	r, w, err := copyPipe()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the data, or, when the call has, with the pipe
		if err := feed(w); err != nil {
			cancel(err)
			return
		}
		_ = w.Close()
	}()
	err = call(ctx, r)
	cause := context.Cause(ctx) // before feed can meet the closed pipe, which says nothing of why
	_ = r.Close()
	if err != nil && cause != nil {
		return cause
	}
	return err
}

// pullThrough makes a call that writes to a pipe what drain reads, to its end. The
// sandbox may keep the pipe open when the call has ended, for ever: ctx ends that too.
func pullThrough(ctx context.Context, call func(ctx context.Context, w *os.File) error,
	drain func(r io.Reader) error) error {
	r, w, err := copyPipe()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })()
	calling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	called := make(chan error, 1)
	go func() {
		called <- call(calling, w)
		_ = w.Close()
	}()
	derr := drain(r)
	_ = r.Close() // what still writes fails
	if derr != nil && !cutOff(derr) {
		cancel(derr) // a hostile call would not end by itself
	}
	err = <-called
	switch {
	case derr != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && (derr == nil || cutOff(derr)):
		return err
	}
	return derr
}

// copyAll is io.Copy with large pieces.
func copyAll(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, copyBuffer))
}
