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

// runHandlers are the methods that start a command. Connections take turns at that: see turns.
func (s *Server) runHandlers() map[string]handler {
	boxes, execs := s.cfg.Sandboxes, s.cfg.Execs
	return map[string]handler{
		api.MethodSandboxRun: handle(func(ctx context.Context, c *Call, p api.RunParams) (api.RunResult, error) {
			if err := checkBuild(p.IfBuild); err != nil {
				return api.RunResult{}, err
			}
			end, err := s.turns.take(ctx, c.line)
			if err != nil {
				return api.RunResult{}, err
			}
			defer end()
			var news *time.Timer
			defer func() {
				if news != nil {
					news.Stop()
				}
			}()
			return boxes.RunNew(ctx, c.Actor, p, c.FDs, c.Progress, func(sb *api.Sandbox, exec string, pid int) {
				end()
				news = time.AfterFunc(startedDelay, func() {
					c.Progress(api.Progress{Kind: api.ProgressStarted, Exec: exec, PID: pid, Sandbox: sb.ID,
						Note: sb.Note, Unenforced: sb.Unenforced})
				})
			}, c.afterSent)
		}),
		api.MethodExecRun: handle(func(ctx context.Context, c *Call, p api.ExecParams) (api.ExecResult, error) {
			end, err := s.turns.take(ctx, c.line)
			if err != nil {
				return api.ExecResult{}, err
			}
			defer end()
			return execs.Run(ctx, c.Actor, p, c.FDs, func(exec string, pid int) {
				end()
				c.Progress(api.Progress{Kind: api.ProgressStarted, Exec: exec, PID: pid})
			}, c.afterSent)
		}),
		api.MethodExecStart: handle(func(ctx context.Context, c *Call, p api.ExecParams) (api.StartResult, error) {
			end, err := s.turns.take(ctx, c.line)
			if err != nil {
				return api.StartResult{}, err
			}
			defer end()
			return execs.Start(ctx, c.Actor, p, c.FDs)
		}),
	}
}

// checkBuild refuses a call that is for another build.
func checkBuild(want string) error {
	if want == "" || want == version.BuildID {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "the daemon is build %s, the call is for build %s", version.BuildID,
		want).WithField("if_build").
		WithHint("leave if_build out to call any build")
}
