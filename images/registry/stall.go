package registry

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// DefaultStall is how long a registry may send nothing before a download is given
// up. Without an end it would hold the layer's lock for ever, and every later pull
// of the layer would wait behind it.
const DefaultStall = 60 * time.Second

// Guard cancels a download that stands still.
type Guard struct {
	timer *time.Timer
	limit time.Duration
}

// GuardStall starts to watch; cancel is called with the reason.
func GuardStall(limit time.Duration, cancel context.CancelCauseFunc) *Guard {
	return GiveUp(limit, cancel, "the registry has sent nothing for %s")
}

// GiveUp cancels when the limit is over; what has a place for it.
func GiveUp(limit time.Duration, cancel context.CancelCauseFunc, what string) *Guard {
	return &Guard{limit: limit, timer: time.AfterFunc(limit, func() {
		cancel(api.Errorf(api.Unavailable, what, limit).WithHint("try again: what was complete is kept"))
	})}
}

// Stop ends the watch.
func (g *Guard) Stop() { g.timer.Stop() }

// Begin counts the time until the function that it returns is called.
func (g *Guard) Begin() (end func()) {
	g.timer.Reset(g.limit)
	return func() { g.timer.Stop() }
}

// Watch tells the guard of every byte that r gives. Only the time inside Read
// counts: a slow disk is not the registry's fault.
func (g *Guard) Watch(r io.ReadCloser) io.ReadCloser { return &watchedReader{r, g} }

type watchedReader struct {
	io.ReadCloser
	g *Guard
}

func (w *watchedReader) Read(p []byte) (int, error) {
	defer w.g.Begin()()
	return w.ReadCloser.Read(p)
}

// Stalled prefers the reason why receiving was cancelled to what that broke.
func Stalled(receiving context.Context, err error) error {
	var reason *api.Error
	if errors.As(context.Cause(receiving), &reason) {
		return reason
	}
	return err
}

// ErrEnded cancels what is left of a stream.
var ErrEnded = errors.New("the layer was read or given up")
