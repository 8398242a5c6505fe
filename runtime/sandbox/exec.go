package sandbox

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// running is one exec: under way, or ended and kept for its output.
type running struct {
	id     string
	s      *Sandbox
	by     *api.AuditCaller // who has started it; nil of those of a hutchd before
	params api.ExecParams
	bounds bounds
	open   bool   // stdin is open for exec.write
	shell  string // its id, when it is one
	kept   string // its name, when it is one (KeepExec)
	guest  uint64 // the exec's id on the guest channel
	exec   *guestapi.Exec
	io     *stdio
	start  time.Time
	until  time.Time     // when its timeout is over, unless the sandbox is paused meanwhile; zero without one
	before time.Duration // that the sandbox had been paused when it started

	group     group       // its cgroup; without a name when it has none, or has given it back
	oom, pids uint64      // the sandbox's Events when it started
	told      api.Verdict // the limit whose hit was reported; guarded by s.mu
	company   bool        // another exec ran in the sandbox meanwhile; guarded by s.mu

	// stop ends the exec for the reason that is its cause.
	stop context.CancelCauseFunc
	// follow waits for the end, or makes it, and puts it on record. It is called once.
	follow func()
	// done is closed when the exec has ended and what follows is set.
	done    chan struct{}
	end     guestapi.Event
	verdict api.Verdict // "" when the leader ended by itself
	took    time.Duration
	cpu     time.Duration // what it has used of CPU time
	memory  int64         // peak, bytes
	met     *api.LimitHit // behind the verdict
	shm     string        // what /dev/shm explains of its end
	foreign string        // the same of files of others in host folders
	cut     bool          // the disk did not take all of its output
	denials []api.Denial
	// unguarded are names of the workspace's guard that it, or what ran beside it, has brought.
	unguarded []api.Unguarded
	refused   []api.Denial  // by the network; guarded by s.mu while it runs
	begun     look          // what is told behind its failure is later; guarded by s.looking
	wasOver   bool          // the sandbox was over its limit of disk space when it started
	disk      diskuse.Usage // the most that the sandbox was seen to take meanwhile; guarded by s.mu while it runs
	gone      diskuse.Usage // disk.gone at its beginning

	input    gate        // serialises exec.write
	followed atomic.Bool // somebody has attached
	output   atomic.Int64
}

// wrote counts what the command writes, and ends it when that is too much.
func (r *running) wrote(n int64) {
	if total := r.output.Add(n); r.bounds.output > 0 && total > r.bounds.output {
		r.stop(errOutput)
	}
}

// ExecRequest is exec.run or exec.start as it arrived.
type ExecRequest struct {
	Params  api.ExecParams
	FDs     packet.Taker
	Started func(exec string, pid int) // called once the command runs; never nil
	// Sent calls what it is given when the caller has the result, or is gone. For Run; nil
	// when the caller has it as soon as Run returns.
	Sent func(func())

	channel *os.File // the exec is a shell, and this the stdin of its worker
	kept    *os.File // and the other end
	keep    string   // of KeepExec
}

// killTimeout bounds how long PID 1 may take to report the end of an exec that
// was killed. A PID 1 that does not is hostile or stuck, and the sandbox goes.
const killTimeout = 10 * time.Second

// Why an exec was ended.
var (
	errTimeout = errors.New("the exec's timeout is over")
	errCPUTime = errors.New("the exec's CPU time is used up")
	errOutput  = errors.New("the exec has written too much")
	errKilled  = errors.New("the exec was killed")
	errGone    = errors.New("the caller is gone")
)

// Run runs a command and returns when it has ended. When ctx ends first, the
// command and all it started are killed.
func (m *Manager) Run(ctx context.Context, req ExecRequest) (api.ExecResult, error) {
	_, res, err := m.run(ctx, req)
	return res, err
}

// run is Run, and returns the exec, too, which is nil when the command never ran.
func (m *Manager) run(ctx context.Context, req ExecRequest) (*running, api.ExecResult, error) {
	if req.Params.Background {
		return nil, api.ExecResult{}, api.Errorf(api.InvalidArgument, "background: exec.run waits for the command").
			WithField("background").WithHint("use exec.start")
	}
	r, err := m.startExec(ctx, &req, false)
	if err != nil {
		res, err := notRun(ctx, r, err)
		return nil, res, err
	}
	defer m.forgetAnswered(r, req.Sent)
	done, gone := r.keepOutput()
	if gone == nil {
		defer done()
	}
	stop := context.AfterFunc(ctx, func() { r.stop(errGone) })
	r.follow() // here: a goroutine more would be one more to wake
	if !stop() && r.verdict == api.VerdictCanceled {
		return r, api.ExecResult{}, context.Cause(ctx)
	}
	if gone != nil { // its sandbox was removed at the moment in which it started
		return r, api.ExecResult{}, gone
	}
	res, err := r.result(req.Params.OutputBytes, req.Params.Encoding)
	return r, res, err
}

// Start starts a command and returns when it runs. It lives on when the caller is
// gone.
func (m *Manager) Start(ctx context.Context, req ExecRequest) (api.StartResult, error) {
	p := &req.Params
	r, err := m.startExec(ctx, &req, !p.Background && p.Stdin == "" && p.Stdio == nil)
	if err != nil {
		_, err := notStarted(ctx, r, err)
		return api.StartResult{}, err
	}
	m.watchers.Go(r.follow)
	return api.StartResult{Exec: r.id, PID: r.exec.PID}, nil
}

// startExec starts a command. Its caller must call r.follow, which watches it.
func (m *Manager) startExec(ctx context.Context, req *ExecRequest, open bool) (*running, error) {
	p := &req.Params
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s, err := m.find(p.Sandbox)
	if err != nil {
		return nil, err
	}
	leave, err := m.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	defer leave()
	id, err := m.take(p.Exec)
	if err != nil {
		return nil, err
	}
	defer m.startEnds(id)
	r := &running{id: id, s: s, params: *p, open: open, by: audit.Caller(ctx), start: time.Now(),
		before: s.clock.state().Total, done: make(chan struct{})}
	if req.channel != nil {
		r.shell = newID("sh_")
	}
	r.kept = req.keep
	m.beginDisk(r)
	if r.bounds, err = m.boundsOf(s, p); err != nil {
		return nil, err
	}
	if r.kept != "" {
		r.bounds.timeout = 0
	}
	if r.bounds.timeout > 0 {
		r.until = r.start.Add(r.bounds.timeout)
	}
	if err = m.checkNarrow(s, p.Network); err != nil {
		return nil, err
	}
	r.guest = s.guest.NewID()
	if err = m.enterGroup(r); err != nil {
		return r, err
	}
	if err = m.narrow(r); err != nil {
		m.leaveGroup(r)
		return r, err
	}
	own, cancel := context.WithCancelCause(context.Background())
	r.stop = cancel
	if r.io, err = m.prepare(ctx, r, req); err != nil {
		cancel(nil)
		m.leaveGroup(r)
		if api.ErrorCode(err) != api.AlreadyExists { // that one is another's
			m.dropNow(r)
		}
		return r, err
	}
	limited, stopTimer := r.limit(own)
	starting, stopStarting := joined(ctx, limited)
	m.beginLook(r)
	s.launching(r)
	err = m.launchExec(starting, r)
	if herr := r.io.held(r); err == nil && herr != nil {
		_, _ = m.end(r) // it runs, and writes to nobody
		err = herr
	}
	stopStarting()
	if err != nil {
		err = causeOf(limited, err)
		m.auditExec(r, err)
		s.launched(r)
		m.tellEarly(s)
		stopTimer()
		cancel(nil)
		m.leaveGroup(r)
		r.io.abort()
		r.io.forget()
		m.dropNow(r) // before somebody tries again with the same id
		return r, err
	}
	r.io.started()
	here := m.addExec(r) // first: who hears of its start may ask for it
	m.execStarted(r)
	if !here {
		cancel(errGone)
	}
	req.Started(r.id, r.exec.PID)
	if r.bounds.cpu > 0 && s.grouped {
		m.watchers.Go(func() { m.watchCPU(limited, r) })
	}
	r.follow = func() {
		defer cancel(nil)
		defer stopTimer()
		m.supervise(limited, r)
	}
	return r, nil
}

// joined is ended by either of two contexts.
func joined(a, b context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// causeOf prefers the reason why ctx ended to what that broke.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// launchExec asks PID 1 to start the command. A PID 1 that says neither yes nor no
// has no more time than one that does not report an end: what it runs, if it
// runs anything, can be ended only with the sandbox.
func (m *Manager) launchExec(limited context.Context, r *running) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(limited))
	defer cancel(nil)
	defer context.AfterFunc(limited, func() {
		select {
		case <-time.After(killTimeout):
			cancel(context.Cause(limited))
		case <-ctx.Done(): // it has answered
		}
	})()
	var err error
	r.exec, err = r.s.guest.Start(ctx, m.request(r), r.io.give)
	if err != nil && ctx.Err() != nil {
		m.removeLater(r.s, "its PID 1 did not start a command")
	}
	return err
}

// supervise waits for the end of the leader, or makes it, and settles the exec.
func (m *Manager) supervise(limited context.Context, r *running) {
	end, err := r.exec.Wait(limited)
	if err != nil && limited.Err() != nil && !r.s.hasEnded() {
		var over *overMemory
		switch cause := context.Cause(limited); {
		case errors.As(cause, &over):
			r.verdict, r.met = api.VerdictOOM, &over.hit
		case errors.Is(cause, errTimeout):
			r.verdict = api.VerdictTimeoutWall
		case errors.Is(cause, errCPUTime):
			r.verdict = api.VerdictTimeoutCPU
		case errors.Is(cause, errOutput):
			r.verdict = api.VerdictOutput
		case errors.Is(cause, errDisk):
			r.verdict = api.VerdictDisk
		case errors.Is(cause, errKilled):
			r.verdict = api.VerdictKilled
		default:
			r.verdict = api.VerdictCanceled
		}
		end, err = m.end(r)
	}
	if err != nil {
		// PID 1 is gone, and with it everything in the sandbox.
		end = guestapi.Event{Status: int(unix.SIGKILL)}
		if r.verdict == "" {
			r.verdict = m.whySandboxEnded()
		}
		r.s.awaitEnd() // who hears of it next asks what became of the sandbox
	}
	m.settle(limited, r, end)
}

// settle collects what the exec has written, puts its end on record and announces it.
func (m *Manager) settle(limited context.Context, r *running, end guestapi.Event) {
	ctx, cancel := r.patience(limited)
	err := m.collect(ctx, r)
	cancel()
	if launcherGone(err) && r.verdict == "" {
		// The other ends of its pipes went with hutch-launch: SIGPIPE is no end of its own.
		r.verdict = api.VerdictLost
	}
	r.end, r.took = end, time.Since(r.start)
	m.lookWhy(r, end.Status != 0)
	if end.Status != 0 {
		r.shm = m.shmHint(r.s, end.Status)
		r.foreign = m.foreignHint(r.s, r.said(), len(r.io.streams) > 0)
	}
	r.settleRefused()
	m.judge(r)
	r.denials = append(r.denials, r.takeRefused()...)
	r.unguarded = m.lookUnguarded(r.s, r.id)
	m.execExited(r) // before the note: told twice is better than not at all
	if err := errors.Join(err, m.note(r)); err != nil {
		m.cfg.Logger.Debug("collect output", "sandbox", r.s.id, "exec", r.id, "err", err)
	}
	r.io.release()
	m.endExec(r)
	close(r.done)
}

func describe(r api.Sandbox) string {
	if r.Reason == "" {
		return string(r.State)
	}
	return string(r.State) + " (" + r.Reason + ")"
}

// request is what PID 1 is asked to run.
func (m *Manager) request(r *running) guestapi.Request {
	s := r.s
	p, rec := &r.params, s.Record()
	req := guestapi.Request{
		Exec: r.guest,
		Argv: p.Argv, Command: p.Command,
		Env:     s.environ(p),
		Cwd:     orElse(p.Cwd, rec.Workdir),
		MkCwd:   p.Cwd == "",
		User:    orElse(p.User, rec.User),
		TTY:     p.Pty != nil,
		Rlimits: r.bounds.rlimits,
		CPUs:    m.affinity(r),
		CapDrop: api.CapabilityMask(s.spec.CapDrop),
		Cgroup:  r.group.Name,
	}
	if r.shell != "" {
		req.Argv, req.Worker = nil, guestapi.WorkerShell
	}
	return req
}

// defaultPath is what docker and podman use when an image sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is the command's whole environment: the image's, then the sandbox's,
// then the exec's, sorted so that it is the same every time. Nothing of the
// host's is in it.
func (s *Sandbox) environ(p *api.ExecParams) []string {
	env := map[string]string{"PATH": defaultPath, "HOSTNAME": s.Record().Hostname}
	if p.Pty != nil {
		env["TERM"] = "xterm"
	}
	for _, kv := range s.root.Config.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	maps.Copy(env, s.spec.Env)
	maps.Copy(env, p.Env)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
