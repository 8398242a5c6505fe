package images

import (
	"context"
	"io"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// defaultStall is how long a registry may send nothing before a download is given
// up. Without an end it would hold the layer's lock for ever, and every later pull
// of the layer would wait behind it.
const defaultStall = 60 * time.Second

// stallGuard cancels a download that stands still.
type stallGuard struct {
	timer *time.Timer
	limit time.Duration
}

// guardStall starts to watch; cancel is called with the reason.
func guardStall(limit time.Duration, cancel context.CancelCauseFunc) *stallGuard {
	return giveUp(limit, cancel, "the registry has sent nothing for %s")
}

// giveUp cancels when the limit is over; what has a place for it.
func giveUp(limit time.Duration, cancel context.CancelCauseFunc, what string) *stallGuard {
	return &stallGuard{limit: limit, timer: time.AfterFunc(limit, func() {
		cancel(api.Errorf(api.Unavailable, what, limit).WithHint("try again: what was complete is kept"))
	})}
}

// stop ends the watch.
func (g *stallGuard) stop() { g.timer.Stop() }

// begin counts the time until the function that it returns is called.
func (g *stallGuard) begin() (end func()) {
	g.timer.Reset(g.limit)
	return func() { g.timer.Stop() }
}

// watch tells the guard of every byte that r gives. Only the time inside Read
// counts: a slow disk is not the registry's fault.
func (g *stallGuard) watch(r io.ReadCloser) io.ReadCloser { return &watchedReader{r, g} }

type watchedReader struct {
	io.ReadCloser
	g *stallGuard
}

func (w *watchedReader) Read(p []byte) (int, error) {
	defer w.g.begin()()
	return w.ReadCloser.Read(p)
}
