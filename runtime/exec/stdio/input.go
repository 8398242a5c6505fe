package stdio

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Open reports whether stdin is open for Write.
func (io *IO) Open() bool { return io.input != nil }

// IsTerminal reports whether it is a terminal.
func (io *IO) IsTerminal() bool { return io.master != nil }

// CloseInput closes stdin, and ends a Write. Twice is no error.
func (io *IO) CloseInput() { _ = io.input.Close() }

// Write writes to stdin when nobody else does, and blocks while the command does not read. When ctx ends it returns
// why.
func (io *IO) Write(ctx context.Context, data []byte) error {
	if err := io.writing.enter(ctx); err != nil {
		return err
	}
	defer io.writing.leave()
	return writeUntil(ctx, io.input, data)
}

// writeUntil writes data, or what fits until ctx ends. The file is as it was then.
func writeUntil(ctx context.Context, f *os.File, data []byte) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	_, err := f.Write(data)
	if !stop() { // also behind a write that was done: the next one would meet the deadline
		<-ended
		_ = f.SetWriteDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// gate is a mutex whose waiters may give up. The zero value is open.
type gate struct {
	once sync.Once
	in   chan struct{} // holds one while it is locked
}

func (g *gate) enter(ctx context.Context) error {
	g.once.Do(func() { g.in = make(chan struct{}, 1) })
	select {
	case g.in <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) leave() { <-g.in }
