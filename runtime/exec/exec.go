package exec

import (
	"cmp"
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
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Exec is one command in a sandbox: under way, or ended and kept for its output. Its methods may be called from any
// goroutine.
type Exec struct {
	t      *Table
	id     string
	s      Sandbox
	set    *Set             // of s
	by     *api.AuditCaller // who has started it; nil of those of a hutchd before
	params api.ExecParams
	bounds bounds
	open   bool   // stdin is open for exec.write
	shell  string // its id, when it is one
	kept   string // its name, when it is one (Table.Keep)
	guest  uint64 // the exec's id on the guest channel
	leader Process
	io     *stdio.IO
	start  time.Time
	until  time.Time     // when its timeout is over, unless the sandbox is paused meanwhile; zero without one
	before time.Duration // that the sandbox had been paused when it started
	oom    uint64        // the sandbox's Events when it started, as pids
	pids   uint64
	use    Use // when it started

	// stop ends the exec for the reason that is its cause.
	stop context.CancelCauseFunc
	// follow waits for the end, or makes it, and puts it on record. It is called once.
	follow func()

	// Set.mu guards what follows, until the exec has ended.
	group     Group         // its cgroup; without a name when it has none, or has given it back
	told      api.Verdict   // the limit whose hit was reported
	explained bool          // a model reads its result
	company   bool          // another exec ran in the sandbox meanwhile
	refused   []api.Denial  // by the network
	begun     look          // what is told behind its failure is later
	peak      diskuse.Usage // the most that the sandbox was seen to take meanwhile
	unlisted  bool          // it came when its sandbox had gone

	// done is closed when the exec has ended and what follows is set.
	done    chan struct{}
	end     guestapi.Event
	verdict api.Verdict // "" when the leader ended by itself
	took    time.Duration
	cpu     time.Duration // what it has used of CPU time
	memory  int64         // peak, bytes
	disk    diskuse.Usage // peak
	met     *api.LimitHit // behind the verdict
	why     string        // what explains its end
	cut     bool          // the disk did not take all of its output
	denials []api.Denial
	policy  string // of the sandbox, about some of these
	// unguarded are names of the workspace's guard that it, or what ran beside it, has brought.
	unguarded []api.Unguarded
	recalled  bool // it is of a sandbox that is stopped: nothing of it runs

	forgotten chan struct{} // closed when nobody finds it any more
	followed  atomic.Bool   // somebody has attached
	output    atomic.Int64
}

// ID is its own.
func (r *Exec) ID() string { return r.id }

// Shell is the id of the shell that it is, "" for none.
func (r *Exec) Shell() string { return r.shell }

// Sandbox is the one that it is in.
func (r *Exec) Sandbox() Sandbox { return r.s }

// Params are what was asked for; of one of a hutchd before, what is shown of it.
func (r *Exec) Params() *api.ExecParams { return &r.params }

// PID is its leader's as the sandbox counts; 0 before PID 1 has told it.
func (r *Exec) PID() int {
	if r.leader == nil {
		return 0
	}
	return r.leader.PID()
}

// Started is when it was.
func (r *Exec) Started() time.Time { return r.start }

// Done is closed when it has ended, and Outcome says how.
func (r *Exec) Done() <-chan struct{} { return r.done }

// Forgotten is closed when nobody finds it any more.
func (r *Exec) Forgotten() <-chan struct{} { return r.forgotten }

// Stop ends it for a reason, which is a *Cause, and does not wait for the end.
func (r *Exec) Stop(why error) { r.stop(why) }

// Channel is hutchd's end of the channel to the worker that keeps a shell, nil of others; it is the shell's.
func (r *Exec) Channel() *os.File { return r.io.Channel() }

// wrote counts what the command writes, and ends it when that is too much.
func (r *Exec) wrote(n int64) {
	if total := r.output.Add(n); r.bounds.output > 0 && total > r.bounds.output {
		r.stop(errOutput)
	}
}

// Request is exec.run or exec.start as it arrived.
type Request struct {
	Params  api.ExecParams
	FDs     packet.Taker
	Started func(exec string, pid int) // called once the command runs; never nil
	// Explained says that a model reads the result, which is to say all that was refused.
	Explained bool
	// Sent calls what it is given when the caller has the result, or is gone. For Run; nil
	// when the caller has it as soon as Run returns.
	Sent func(func())

	channel *os.File // the exec is a shell, and this the stdin of its worker
	keptEnd *os.File // and the other end
	keep    string   // of Table.Keep
}

// KillTimeout bounds how long PID 1 may take to report the end of an exec that
// was killed. A PID 1 that does not is hostile or stuck, and the sandbox goes.
const KillTimeout = 10 * time.Second

// Cause is why an exec was ended, and its verdict then.
type Cause struct {
	Verdict api.Verdict
	Text    string
	Limit   *api.LimitHit // that it has met; nil where nobody was ended for one
}

func (c *Cause) Error() string { return c.Text }

// Why an exec was ended.
var (
	ErrTimeout = &Cause{Verdict: api.VerdictTimeoutWall, Text: "the exec's timeout is over"}
	ErrKilled  = &Cause{Verdict: api.VerdictKilled, Text: "the exec was killed"}
	ErrGone    = &Cause{Verdict: api.VerdictCanceled, Text: "the caller is gone"}
	errCPUTime = &Cause{Verdict: api.VerdictTimeoutCPU, Text: "the exec's CPU time is used up"}
	errOutput  = &Cause{Verdict: api.VerdictOutput, Text: "the exec has written too much"}
)

// Run runs a command and returns when it has ended. When ctx ends first, the
// command and all it started are killed.
func (t *Table) Run(ctx context.Context, req Request) (api.ExecResult, error) {
	_, res, err := t.RunExec(ctx, req)
	return res, err
}

// RunExec is Run, and returns the exec, too, which is nil when the command never ran.
func (t *Table) RunExec(ctx context.Context, req Request) (*Exec, api.ExecResult, error) {
	if req.Params.Background {
		return nil, api.ExecResult{}, api.Errorf(api.InvalidArgument, "background: exec.run waits for the command").
			WithField("background").WithHint("use exec.start")
	}
	r, err := t.startExec(ctx, &req, false)
	if err != nil {
		res, err := notRun(ctx, r, err)
		return nil, res, err
	}
	defer t.forgetAnswered(r, req.Sent)
	done, gone := r.keepOutput()
	if gone == nil {
		defer done()
	}
	stop := context.AfterFunc(ctx, func() { r.stop(ErrGone) })
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
func (t *Table) Start(ctx context.Context, req Request) (api.StartResult, error) {
	p := &req.Params
	r, err := t.startExec(ctx, &req, !p.Background && p.Stdin == "" && p.Stdio == nil)
	if err != nil {
		_, err := StartError(ctx, err)
		return api.StartResult{}, err
	}
	t.cfg.Background.Go(r.follow)
	return api.StartResult{Exec: r.id, PID: r.PID()}, nil
}

// startExec starts a command. Its caller must call r.follow, which watches it.
func (t *Table) startExec(ctx context.Context, req *Request, open bool) (*Exec, error) {
	p := &req.Params
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s, err := t.cfg.Sandboxes.Find(p.Sandbox)
	if err != nil {
		return nil, err
	}
	leave, err := s.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	id, err := t.take(p.Exec)
	if err != nil {
		return nil, err
	}
	defer t.startEnds(id)
	r, err := t.begin(ctx, s, id, req, open)
	if err != nil {
		return nil, err
	}
	return r, t.bringUp(ctx, r, req)
}

// bringUp makes a command run of which there is nothing yet, or leaves nothing of it.
func (t *Table) bringUp(ctx context.Context, r *Exec, req *Request) (err error) {
	if err = t.enterGroup(r); err != nil {
		return err
	}
	if p := r.params.Network; p != nil {
		if err = r.s.Narrow(r.id, r.group.Name, p); err != nil {
			r.leaveGroup()
			return err
		}
	}
	own, cancel := context.WithCancelCause(context.Background())
	r.stop = cancel
	if err = t.prepare(r, req); err != nil {
		cancel(nil)
		r.leaveGroup()
		if api.ErrorCode(err) != api.AlreadyExists { // that one is another's
			t.dropNow(r)
		}
		return err
	}
	limited, stopTimer := r.limit(own)
	if err = t.launch(ctx, limited, r); err != nil {
		stopTimer()
		cancel(nil)
		return err
	}
	r.io.Started()
	here := t.add(r) // first: who hears of its start may ask for it
	r.tellStarted()
	if !here {
		cancel(ErrGone)
	}
	req.Started(r.id, r.PID())
	r.watch(limited)
	r.follow = func() {
		defer cancel(nil)
		defer stopTimer()
		t.supervise(limited, r)
	}
	return nil
}

// begin makes an exec with its bounds, of which there is nothing yet.
func (t *Table) begin(ctx context.Context, s Sandbox, id string, req *Request, open bool) (r *Exec, err error) {
	set := s.Commands()
	r = &Exec{t: t, id: id, s: s, set: set, params: req.Params, open: open, explained: req.Explained,
		by: audit.Caller(ctx), start: time.Now(),
		before: set.Clock.State().Total, kept: req.keep, done: make(chan struct{}), forgotten: make(chan struct{})}
	if req.channel != nil {
		r.shell = newID("sh_")
	}
	r.use = s.BeginUse()
	r.peak = r.use.Disk
	if r.bounds, err = t.boundsOf(s, &r.params); err != nil {
		return nil, err
	}
	if r.kept != "" {
		r.bounds.timeout = 0
	}
	if r.bounds.timeout > 0 {
		r.until = r.start.Add(r.bounds.timeout)
	}
	if p := r.params.Network; p != nil {
		if err = s.CheckNetwork(p); err != nil {
			return nil, err
		}
	}
	r.guest = s.Init().NewID()
	return r, nil
}

// prepare makes the stdio of an exec, and hands over what hutch-launch is to hold.
func (t *Table) prepare(r *Exec, req *Request) (err error) {
	p := &r.params
	io, err := stdio.New(stdio.Request{Params: p, Open: r.open, FDs: req.FDs,
		User: cmp.Or(p.User, r.s.Record().User), Channel: req.channel, Kept: req.keptEnd, Pts: r.s.Pts})
	if err != nil {
		return err
	}
	r.io = io
	if err = r.hold(); err != nil {
		io.Abort()
	}
	return err
}

// launch starts the command, and takes what hutch-launch says meanwhile. When it fails nothing is left of it.
func (t *Table) launch(ctx, limited context.Context, r *Exec) error {
	starting, stop := joined(ctx, limited)
	r.beginLook()
	r.set.launching(r)
	err := r.askStart(starting)
	if herr := r.io.Held(r.wrote); err == nil && herr != nil {
		_, _ = t.kill(r) // it runs, and writes to nobody
		err = herr
	}
	stop()
	if err == nil {
		return nil
	}
	err = causeOf(limited, err)
	r.auditStart(err)
	r.set.launched(r)
	t.tellEarly(r.s)
	r.leaveGroup()
	r.io.Abort()
	t.dropNow(r) // before somebody tries again with the same id
	return err
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

// askStart asks PID 1 to start the command. A PID 1 that says neither yes nor no
// has no more time than one that does not report an end: what it runs, if it
// runs anything, can be ended only with the sandbox.
func (r *Exec) askStart(limited context.Context) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(limited))
	defer cancel(nil)
	defer context.AfterFunc(limited, func() {
		select {
		case <-time.After(KillTimeout):
			cancel(context.Cause(limited))
		case <-ctx.Done(): // it has answered
		}
	})()
	var err error
	r.leader, err = r.s.Init().Start(ctx, r.request(), r.io.Give())
	if err != nil && ctx.Err() != nil {
		r.s.Distrust("its PID 1 did not start a command")
	}
	return err
}

// supervise waits for the end of the leader, or makes it, and settles the exec.
func (t *Table) supervise(limited context.Context, r *Exec) {
	end, err := r.leader.Wait(limited)
	if err != nil && limited.Err() != nil && !isClosed(r.s.Exited()) {
		r.verdict = api.VerdictCanceled
		if why, ok := errors.AsType[*Cause](context.Cause(limited)); ok {
			r.verdict, r.met = why.Verdict, why.Limit
		}
		end, err = t.kill(r)
	}
	if err != nil {
		// PID 1 is gone, and with it everything in the sandbox.
		end = guestapi.Event{Status: int(unix.SIGKILL)}
		if r.verdict == "" {
			r.verdict = r.s.WhyEnded()
		}
		r.s.AwaitEnd() // who hears of it next asks what became of the sandbox
	}
	t.settle(limited, r, end)
}

// settle collects what the exec has written, puts its end on record and announces it.
func (t *Table) settle(limited context.Context, r *Exec, end guestapi.Event) {
	ctx, cancel := r.patience(limited)
	err := r.collect(ctx)
	cancel()
	if launcherGone(err) && r.verdict == "" {
		// The other ends of its pipes went with hutch-launch: SIGPIPE is no end of its own.
		r.verdict = api.VerdictLost
	}
	r.end, r.took = end, time.Since(r.start)
	r.LookWhy(end.Status != 0)
	if end.Status != 0 {
		shm := r.s.ShmHint(end.Status)
		r.why = cmp.Or(shm, r.s.ForeignHint(r.said(), len(r.io.Streams) > 0))
	}
	r.s.SettleRefused()
	t.judge(r)
	r.denials = append(r.denials, r.TakeRefused()...)
	r.policy = r.s.Policy(r.denials)
	r.unguarded = r.s.Unguarded(r.id)
	r.tellExited() // before the note: told twice is better than not at all
	if err := errors.Join(err, r.noteEnd()); err != nil {
		t.cfg.Log.Debug("collect output", "sandbox", r.s.ID(), "exec", r.id, "err", err)
	}
	r.io.Release()
	t.end(r)
	close(r.done)
}

// said is the start and the end of what a command has written to stderr, or to stdout: a terminal has one stream.
func (r *Exec) said() (said []byte) {
	for _, st := range r.io.Streams {
		if x, err := st.Excerpt(4 << 10); err == nil {
			said = append(append(said, x.Head...), x.Tail...)
		}
	}
	return said
}

// request is what PID 1 is asked to run.
func (r *Exec) request() guestapi.Request {
	p, rec := &r.params, r.s.Record()
	req := guestapi.Request{
		Exec: r.guest,
		Argv: p.Argv, Command: p.Command,
		Env:     environ(r.s, p),
		Cwd:     cmp.Or(p.Cwd, rec.Workdir),
		MkCwd:   p.Cwd == "",
		User:    cmp.Or(p.User, rec.User),
		TTY:     p.Pty != nil,
		Rlimits: r.bounds.rlimits,
		CPUs:    r.s.CPUs(r.bounds.group.CPUs),
		CapDrop: api.CapabilityMask(r.s.CapDrop()),
		Cgroup:  r.group.Name,
	}
	if r.shell != "" {
		req.Argv, req.Worker = nil, guestapi.WorkerShell
	}
	return req
}

// DefaultPath is what docker and podman use when an image sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is the command's whole environment: the image's, then the sandbox's,
// then the exec's, sorted so that it is the same every time. Nothing of the
// host's is in it.
func environ(s Sandbox, p *api.ExecParams) []string {
	image, own := s.Env()
	env := map[string]string{"PATH": DefaultPath, "HOSTNAME": s.Record().Hostname}
	if p.Pty != nil {
		env["TERM"] = "xterm"
	}
	for _, kv := range image {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	maps.Copy(env, own)
	maps.Copy(env, p.Env)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
