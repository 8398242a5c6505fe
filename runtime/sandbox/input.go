package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// Write writes to an exec's stdin. It blocks while the command does not read.
func (m *Manager) Write(ctx context.Context, p api.WriteParams) error {
	r, err := m.live(p.Exec)
	if err != nil {
		return err
	}
	data, err := excerpt.Decode("data", p.Data, p.Encoding)
	if err != nil {
		return err
	}
	if r.io.input == nil {
		return api.Errorf(api.FailedPrecondition, "the stdin of exec %s is not open", p.Exec).
			WithHint("start it with exec.start, without background, stdin and stdio")
	}
	m.audit(ctx, r.s, r.id, api.AuditStdin, audit.Whole(data, m.cfg.Audit.Full()), len(data))
	return r.write(ctx, data)
}

// keyTimeout bounds how long a terminal whose command does not read may take a key.
const keyTimeout = 10 * time.Second

// CloseStdin closes an exec's stdin.
func (m *Manager) CloseStdin(ctx context.Context, p api.ExecRef) error {
	r, err := m.live(p.Exec)
	if err != nil {
		return err
	}
	switch {
	case r.io.input == nil:
	case r.io.master != nil:
		// A terminal has no end of file; this is the key for it (termios(3), VEOF). It comes
		// behind what is being written.
		ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, api.Errorf(api.FailedPrecondition,
			"the terminal of exec %s takes no input", p.Exec).
			WithHint("its command does not read; exec.signal or exec.kill reaches it"))
		defer cancel()
		return r.write(ctx, []byte{4})
	default:
		_ = r.io.input.Close() // ends a write, too; twice is no error for the caller
		err = m.cfg.Launcher.Loosen(r.s.id, r.id)
	}
	return err
}

// write writes to r's stdin when nobody else does.
func (r *running) write(ctx context.Context, data []byte) error {
	if err := r.input.enter(ctx); err != nil {
		return err
	}
	defer r.input.leave()
	err := writeUntil(ctx, r.io.input, data)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) {
		return api.Errorf(api.FailedPrecondition, "exec %s reads its stdin no more", r.id).
			WithHint("it was closed, or the command has ended")
	}
	return err
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
