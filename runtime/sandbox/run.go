package sandbox

import (
	"context"
	"sync/atomic"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// RunRequest is sandbox.run as it arrived.
type RunRequest struct {
	Params   api.RunParams
	FDs      packet.Taker
	User     uint32
	Conn     uint64
	Progress func(api.Progress)
	Started  func(sb *api.Sandbox, exec string, pid int) // called once the command runs; never nil
	// calls what it is given when the caller has the result, or is gone
	Sent func(func())
}

// RunNew makes a sandbox, or acquires one, runs a command in it, and removes it. When ctx ends first, all of that is
// taken back.
func (m *Manager) RunNew(ctx context.Context, req RunRequest) (api.RunResult, error) {
	p := &req.Params
	if err := p.Validate(); err != nil {
		return api.RunResult{}, err
	}
	started := m.starts.begin()
	defer started()
	var told atomic.Bool
	progress := req.Progress
	if p.ProgressGate != nil && progress != nil {
		req.Progress = func(n api.Progress) {
			told.Store(true)
			progress(n)
		}
	}
	sb, err := m.forRun(ctx, &req)
	if err != nil {
		return api.RunResult{}, err
	}
	s, err := m.find(sb.ID)
	if err != nil {
		return api.RunResult{}, err
	}
	params := p.Exec
	params.Sandbox = sb.ID
	var r *exec.Exec
	if params.Command == "" {
		params.Argv, err = commandOf(sb, p.Entrypoint, params.Argv)
	}
	if err == nil && told.Load() {
		// What the command writes to a terminal must not meet what is shown of a download there.
		progress(api.Progress{Kind: api.ProgressReady, Sandbox: sb.ID})
		err = awaitGate(ctx, req.FDs, "progress_gate", *p.ProgressGate)
	}
	if err == nil && p.Gate != nil {
		err = awaitGate(ctx, req.FDs, "gate", *p.Gate)
	}
	var res api.ExecResult
	if err == nil {
		r, res, err = m.Execs.RunExec(ctx, exec.Request{
			Params: params, FDs: req.FDs, Sent: req.Sent,
			Started: func(exec string, pid int) {
				req.Started(sb, exec, pid)
				started()
			},
		})
	}
	if err == nil && (r == nil || !leftNothing(m.cfg.Kernel, s, r)) {
		_, err = m.kill(context.WithoutCancel(ctx), s, "removed")
	}
	if err != nil {
		m.removeNow(ctx, sb.ID)
		return api.RunResult{}, err
	}
	// The sandbox stays on record until the reply is written: when this hutchd is killed before, the next one knows how
	// the command ended.
	return api.RunResult{Sandbox: *sb, Exec: res}, m.removeAfter(s, req.Sent)
}

// forRun is the sandbox that a run has for itself.
func (m *Manager) forRun(ctx context.Context, req *RunRequest) (*api.Sandbox, error) {
	p := &req.Params
	if p.Acquire != nil {
		a := *p.Acquire
		a.Owner = api.OwnerConnection
		sb, err := m.Pools.Acquire(ctx, req.Conn, a)
		if err == nil && sb == nil {
			err = api.Errorf(api.ResourceExhausted, "no sandbox of pool %q is ready", a.Pool).
				WithField("acquire.wait_ms").WithHint("wait longer, or make the pool larger: hutch pool resize")
		}
		return sb, err
	}
	spec := *p.Sandbox
	spec.Owner = api.OwnerConnection
	sb, err := m.Create(ctx, CreateRequest{Spec: spec, FDs: req.FDs, User: req.User, Conn: req.Conn,
		Progress: req.Progress})
	return &sb, err
}

func commandOf(sb *api.Sandbox, entrypoint *string, args []string) ([]string, error) {
	argv := sb.Argv(entrypoint, args)
	if len(argv) == 0 {
		return nil, api.Errorf(api.InvalidArgument, "image %s has no command of its own, and none was given", sb.Image).
			WithField("exec.argv").
			WithHint("give a command: hutch run %s -- CMD", sb.Image)
	}
	return argv, nil
}

// leftNothing reports whether r, the only command that s has had, has left no process, and nothing of the host's, nor
// anybody, hangs on the moment in which the rest of s, that is PID 1, ends.
func leftNothing(k Kernel, s *Sandbox, r *exec.Exec) bool {
	if hasWritable(&s.spec) {
		return false
	}
	s.mu.Lock()
	alone := s.calls == 0 && len(s.exposed) == 0 &&
		s.record.Start == ""
	state, pid := s.record.State, s.record.PID
	s.mu.Unlock()
	return alone && s.execs.OnlyEver(r) && state == api.Running &&
		!procs.HasOrphans(k.Proc(pid), pid)
}

// hasWritable reports whether a command can write to a folder that outlives its sandbox.
func hasWritable(sp *api.Spec) bool {
	for _, mt := range sp.Mounts {
		if mt.Mode == api.ModeRW || mt.Volume != "" {
			return true
		}
	}
	return sp.Workspace != nil && sp.Workspace.Mode == api.ModeRW
}
