package main

import (
	"context"
	"time"
)

// drainTime is how long connections may go on with calls when the daemon ends.
const drainTime = time.Second

// drain is a context that ends after drainTime. Where the sandboxes are left to the next daemon it ends so long after
// each run that was called has started its command, within ctx: a sandbox that is only being made cannot be left, and
// its client would not learn what became of its command.
func (d *daemon) drain(ctx context.Context) (context.Context, func()) {
	drain, cancel := context.WithCancelCause(ctx)
	over := func() { cancel(context.DeadlineExceeded) }
	timer := time.AfterFunc(drainTime, func() {
		if d.left && d.manager.AwaitStarts(ctx) {
			time.AfterFunc(drainTime, over)
			return
		}
		over()
	})
	return drain, func() {
		timer.Stop()
		over()
	}
}
