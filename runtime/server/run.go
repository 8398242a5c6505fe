package server

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// startedDelay is how long a command of sandbox.run has run when its caller, who gets all there is to know with the
// result, is told that it does: most are over before, and one message less is to be made, sent and read.
const startedDelay = 3 * time.Millisecond

// InTurn makes a handler of what starts a command. Connections take turns at that: see turns. A turn ends with
// Call.Started, or StartedIn, at the latest when f returns.
func InTurn[P, R any](f func(context.Context, *Call, P) (R, error)) func(context.Context, *Call, P) (R, error) {
	return func(ctx context.Context, c *Call, p P) (R, error) {
		end, err := c.dispatcher.s.turns.take(ctx, c.dispatcher.line)
		if err != nil {
			var none R
			return none, err
		}
		c.endTurn = end
		defer func() {
			end()
			if c.news != nil {
				c.news.Stop()
			}
		}()
		return f(ctx, c, p)
	}
}

// Started tells the caller that its command runs. What runs something that is no turn's, such as a tool, calls it, too.
func (c *Call) Started(exec string, pid int) {
	if c.endTurn != nil {
		c.endTurn()
	}
	c.Progress(api.Progress{Kind: api.ProgressStarted, Exec: exec, PID: pid})
}

// StartedIn tells the caller that its command runs in a sandbox that was made for it, unless it is over at once.
func (c *Call) StartedIn(sb *api.Sandbox, exec string, pid int) {
	c.endTurn()
	c.news = time.AfterFunc(startedDelay, func() {
		c.Progress(api.Progress{Kind: api.ProgressStarted, Exec: exec, PID: pid, Sandbox: sb.ID, Note: sb.Note,
			Unenforced: sb.Unenforced})
	})
}

// CheckBuild refuses a call that is for another build.
func CheckBuild(want string) error {
	if want == "" || want == version.BuildID {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "the daemon is build %s, the call is for build %s", version.BuildID,
		want).WithField("if_build").
		WithHint("leave if_build out to call any build")
}
