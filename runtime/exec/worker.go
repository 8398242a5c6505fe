package exec

import (
	"context"
	"os"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
)

// What package shell makes a shell of: an exec whose leader is a worker that keeps it.

// StartShell starts a worker that keeps a shell, which lives on when the caller is gone. channel is what it has as its
// stdin; kept, which stays the caller's, the other end, which hutch-launch keeps for the next hutchd.
func (t *Table) StartShell(ctx context.Context, p api.ExecParams, channel, kept *os.File) (*Exec, error) {
	req := &Request{Params: p, Started: func(string, int) {}, channel: channel, keptEnd: kept}
	r, err := t.startExec(ctx, req, false)
	if err != nil {
		return nil, err
	}
	t.cfg.Background.Go(r.follow)
	return r, nil
}

// Timeout is the wall time that a command in a sandbox may take, of which its caller has asked for so many seconds; 0
// is no end.
func (t *Table) Timeout(s Sandbox, asked *float64) (time.Duration, error) {
	return timeoutOf(t.cfg.Sandboxes.Bounds(), s.Record().Limits.TimeoutS, &api.ExecParams{TimeoutS: asked}, 0)
}

// Lengths are the known lengths of the streams.
func (r *Exec) Lengths() api.Offsets {
	return api.Offsets{Stdout: r.io.Streams[0].Len(), Stderr: r.io.Streams[1].Len()}
}

// LengthsNow are the lengths with all that is in the pipes by now.
func (r *Exec) LengthsNow() (api.Offsets, error) {
	if !isClosed(r.done) { // its end has done that
		if _, err := r.t.cfg.Launcher.Flush(context.Background(), r.s.ID(), r.id); err != nil {
			return api.Offsets{}, err
		}
	}
	return r.Lengths(), nil
}

// Output is what was written to both streams from one place to another, at most so many bytes of each.
func (r *Exec) Output(from, to api.Offsets, limit int64) (out, errs *excerpt.Excerpt, err error) {
	if out, err = r.io.Streams[0].ExcerptOf(from.Stdout, to.Stdout, limit); err != nil {
		return nil, nil, err
	}
	errs, err = r.io.Streams[1].ExcerptOf(from.Stderr, to.Stderr, limit)
	return out, errs, err
}

// Used is what the exec has used so far, where it has a cgroup that tells.
func (r *Exec) Used() (cpu time.Duration, memory int64) {
	if g := r.groupNow(); g.Name != "" {
		cpu, memory, _ = r.usageOf(g)
	}
	return cpu, memory
}
