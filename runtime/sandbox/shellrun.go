package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

// shellNote is what the next hutchd must know of a run, at hutch-launch before the
// worker hears of the run. A worker's memory would do for the result, but not for the
// deadline: it is the sandbox's.
type shellNote struct {
	Run    uint64        `json:"run"` // 0: the shell has come up
	Sum    string        `json:"sum,omitempty"`
	Start  time.Time     `json:"start,omitzero"`
	Until  time.Time     `json:"until,omitzero"`
	Paused time.Duration `json:"paused,omitempty"` // that the sandbox had been paused before
	From   api.Offsets   `json:"from,omitzero"`
	CPU    time.Duration `json:"cpu,omitempty"` // that the shell had used before
	// End is the result without the output, once there is one.
	End *api.ShellResult `json:"end,omitempty"`
}

// shellRun is a command in a shell, under way or ended.
type shellRun struct {
	shellNote
	stop context.CancelCauseFunc // ends it for the reason that is its cause
	done chan struct{}           // closed when End or err is set
	err  error
}

// sumOf tells a command from another one.
func sumOf(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// RunShell runs a command in a shell, or waits for one that was run before. The end of
// ctx kills it.
func (m *Manager) RunShell(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	if err := p.Validate(); err != nil {
		return api.ShellResult{}, err
	}
	sh, err := m.findShell(p.Shell)
	if err != nil {
		return api.ShellResult{}, err
	}
	run, err := sh.again(&p)
	if run == nil && err == nil {
		run, err = m.beginRun(ctx, sh, &p)
	}
	if err != nil {
		return api.ShellResult{}, err
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		if m.leaving.Load() { // the next hutchd goes on
			return api.ShellResult{}, context.Cause(ctx)
		}
		run.stop(errGone)
		<-run.done
	}
	if ctx.Err() != nil {
		return api.ShellResult{}, context.Cause(ctx)
	}
	if run.err != nil {
		return api.ShellResult{}, run.err
	}
	return sh.r.resultOf(run, &p)
}

// again finds the run that the caller wants once more.
func (sh *shell) again(p *api.ShellRunParams) (*shellRun, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case p.Run == 0 || p.Run != sh.last.Run:
		return nil, nil
	case sh.last.Sum != "" && sh.last.Sum != sumOf(p.Command): // "": what it was is not known any more
		return nil, api.Errorf(api.AlreadyExists, "run %d of shell %s is another command", p.Run, sh.id).
			WithField("run").
			WithHint("leave run out, or give the number of the last and one")
	}
	return sh.last, nil
}

// beginRun starts the next run.
func (m *Manager) beginRun(ctx context.Context, sh *shell, p *api.ShellRunParams) (*shellRun, error) {
	s := sh.r.s
	timeout, err := m.timeoutOf(s.limits().TimeoutS, &api.ExecParams{TimeoutS: p.TimeoutS}, 0)
	if err != nil {
		return nil, err
	}
	leave, err := m.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	defer leave() // PID 1 has nothing to do with the run: it may be paused
	own, stop := context.WithCancelCause(audit.WithCaller(context.Background(), audit.Caller(ctx)))
	run, err := sh.next(p, stop)
	if err != nil {
		stop(nil)
		return nil, err
	}
	run.Start, run.Paused = time.Now(), s.clock.state().Total
	run.Until = run.Start.Add(timeout)
	run.From = sh.r.lengths()
	sh.r.takeRefused() // between two commands it was no command's
	m.beginLook(sh.r)
	run.CPU, _ = m.used(sh.r)
	m.watchers.Go(func() { m.follow(own, sh, run, p.Command) })
	return run, nil
}

// next makes the run that comes next the shell's last.
func (sh *shell) next(p *api.ShellRunParams, stop context.CancelCauseFunc) (*shellRun, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch last := sh.last; {
	case !isClosed(last.done):
		return nil, api.Errorf(api.FailedPrecondition, "a command runs in shell %s", sh.id).
			WithHint("wait for it, cancel its call, or open another shell")
	case isClosed(sh.r.done):
		return nil, api.Errorf(api.FailedPrecondition, "shell %s is over: its exit code was %d", sh.id, sh.r.outcome().
			ExitCode).
			WithHint("shell.open opens another")
	case p.Run != 0 && p.Run != last.Run+1:
		return nil, api.Errorf(api.FailedPrecondition, "run %d of shell %s is not the next: the last was %d", p.Run,
			sh.id, last.Run).WithField("run").
			WithHint("leave run out, or give the number of the last and one; older results are not kept")
	default:
		sh.last = &shellRun{shellNote: shellNote{Run: last.Run + 1, Sum: sumOf(p.Command)}, stop: stop,
			done: make(chan struct{})}
		return sh.last, nil
	}
}

// noteRun puts a run on record for the next hutchd.
func (m *Manager) noteRun(sh *shell, run *shellRun) error {
	note, err := json.Marshal(run.shellNote)
	if err != nil {
		return fmt.Errorf("note the command of a shell: %w", err)
	}
	return m.cfg.Launcher.Note(sh.r.s.id, sh.r.id, note)
}

// follow runs a command in the shell that is its own, and waits for its end, or makes it
// when own ends. Without a command it goes on where the hutchd before was killed.
func (m *Manager) follow(own context.Context, sh *shell, run *shellRun, command string) {
	defer close(run.done)
	defer run.stop(nil)
	s := sh.r.s
	s.beginCall()
	defer s.endCall(m)
	limited, stop := s.clock.limit(own, run.Until, run.Paused, errTimeout)
	defer stop()
	req := shellapi.Request{Op: shellapi.OpAsk, Run: run.Run}
	if command != "" {
		req = shellapi.Request{Op: shellapi.OpRun, Run: run.Run, Command: command}
		if run.err = m.noteRun(sh, run); run.err != nil {
			return
		}
		m.auditShell(own, sh, run, command)
	}
	defer m.auditShell(context.Background(), sh, run, "")
	ev, err := sh.run(limited, req)
	if ev.Ev == shellapi.EvNever {
		sh.forget(run)
		return
	}
	end := m.endRun(limited, sh, run, ev, err)
	if end.Hint = s.hint(end.ExitCode, command); end.Hint == "" && end.ExitCode != 0 {
		end.Hint = m.foreignHint(s, nil, false)
	}
	if end.To, run.err = m.lengthsNow(sh.r); run.err != nil {
		return
	}
	run.End = &end
	if err := m.noteRun(sh, run); err != nil {
		m.cfg.Logger.Debug("note the end of a command", "shell", sh.id, "err", err)
	}
}

// run sends a request and waits for the end of its run, or makes it when ctx ends. An
// error says that the shell cannot go on.
func (sh *shell) run(ctx context.Context, req shellapi.Request) (shellapi.Event, error) {
	if sh.c == nil {
		return shellapi.Event{}, shellapi.ErrGone
	}
	if err := sh.c.Send(req); err != nil && !errors.Is(err, unix.EPIPE) {
		return shellapi.Event{}, err
	}
	ev, err := sh.c.Await(ctx, req.Run) // also of a worker that has ended: it may have said how
	if err == nil || ctx.Err() == nil {
		return ev, err
	}
	cause := err
	if err := sh.c.Send(shellapi.Request{Op: shellapi.OpAbort, Run: req.Run}); err != nil {
		return shellapi.Event{}, cause
	}
	patient, cancel := context.WithTimeout(context.Background(), shellPatience)
	defer cancel()
	if ev, err = sh.c.Await(patient, req.Run); err != nil {
		return shellapi.Event{}, cause
	}
	return ev, nil
}

// forget takes back a run that the worker never heard of.
func (sh *shell) forget(run *shellRun) {
	run.err = api.Errorf(api.Unavailable, "the daemon was restarted before the command began").WithHint("run it again")
	before := &shellRun{shellNote: shellNote{Run: run.Run - 1}, done: make(chan struct{})}
	before.err = api.Errorf(api.FailedPrecondition, "the result of run %d of shell %s is not known any more",
		before.Run, sh.id).
		WithHint("its output is in the streams of exec %s", sh.r.id)
	close(before.done)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.last = before
}

// endRun is the result of a run but for its output. err says that the shell cannot go
// on: it is over then.
func (m *Manager) endRun(limited context.Context, sh *shell, run *shellRun, ev shellapi.Event,
	err error) api.ShellResult {
	r := sh.r
	res := api.ShellResult{Shell: sh.id, Run: run.Run, From: run.From, ExecResult: api.ExecResult{
		Exec: r.id, Killed: []int{}, StdoutEncoding: api.Text, StderrEncoding: api.Text,
	}}
	switch {
	case err != nil:
		m.endShell(sh, err)
		res.Closed = true
		end := r.outcome()
		res.ExitCode, res.Signal, res.Verdict, res.Killed = end.ExitCode, end.Signal, end.Verdict, end.Killed
	case ev.Ev == shellapi.EvAborted:
		res.ExitCode, res.Signal, res.Verdict = 128+int(unix.SIGKILL), unix.SignalName(unix.SIGKILL),
			api.VerdictTimeoutWall
		if errors.Is(context.Cause(limited), errGone) {
			res.Verdict = api.VerdictCanceled
		}
		res.Killed = append(res.Killed, ev.Killed...)
	case ev.Ev == shellapi.EvOver:
		m.endShell(sh, shellapi.ErrGone)
		res.Closed = true
		fromStatus(&res.ExecResult, syscall.WaitStatus(ev.Status))
	default:
		res.ExitCode, res.Verdict = ev.Status, api.VerdictOK
		if ev.Status != 0 {
			res.Verdict = api.VerdictNonzero
		}
	}
	res.TimedOut = res.Verdict == api.VerdictTimeoutWall || res.Verdict == api.VerdictTimeoutCPU
	res.DurationMS = ms(time.Since(run.Start))
	m.lookWhy(r, res.Verdict != api.VerdictOK)
	res.Denials, res.Failures = part(r.takeRefused())
	res.Unguarded = m.lookUnguarded(r.s, r.id)
	after, memory := m.used(r)
	res.Peaks = api.Peaks{CPUMS: ms(max(0, after-run.CPU)), MemoryBytes: memory}
	return res
}

// endShell waits for the end of a shell that cannot go on, and makes it.
func (m *Manager) endShell(sh *shell, why error) {
	soon := time.NewTimer(shellPatience)
	defer soon.Stop()
	var late <-chan time.Time
	switch {
	case errors.Is(why, shellapi.ErrGone): // it ends by itself, unless its worker lies
		late = soon.C
	case errors.Is(why, errTimeout):
		sh.r.stop(errTimeout)
	default:
		sh.r.stop(errGone)
	}
	select {
	case <-sh.r.done:
	case <-late:
		sh.r.stop(errKilled)
		<-sh.r.done
	}
}

// fromStatus is what a wait status says of the end of a command.
func fromStatus(res *api.ExecResult, ws syscall.WaitStatus) {
	switch {
	case ws.Signaled():
		res.ExitCode, res.Signal, res.Verdict = 128+int(ws.Signal()), unix.SignalName(ws.Signal()), api.VerdictSignal
	case ws.ExitStatus() != 0:
		res.ExitCode, res.Verdict = ws.ExitStatus(), api.VerdictNonzero
	default:
		res.Verdict = api.VerdictOK
	}
}

// lengths are the known lengths of the streams.
func (r *running) lengths() (o api.Offsets) {
	o.Stdout, _ = r.io.streams[0].known()
	o.Stderr, _ = r.io.streams[1].known()
	return o
}

// lengthsNow are the lengths with all that is in the pipes by now.
func (m *Manager) lengthsNow(r *running) (api.Offsets, error) {
	if !isClosed(r.done) { // its end has done that
		if _, err := m.cfg.Launcher.Flush(context.Background(), r.s.id, r.id); err != nil {
			return api.Offsets{}, err
		}
	}
	return r.lengths(), nil
}

// used is what the exec has used so far, where it has a cgroup that tells.
func (m *Manager) used(r *running) (cpu time.Duration, memory int64) {
	r.s.mu.Lock()
	g := r.group
	r.s.mu.Unlock()
	if g.Name != "" {
		cpu, memory, _ = m.usageOf(r, g)
	}
	return cpu, memory
}

// resultOf is the result of a run that has ended, with what its caller wants of the output.
func (r *running) resultOf(run *shellRun, p *api.ShellRunParams) (api.ShellResult, error) {
	res := *run.End
	limit := p.OutputBytes
	if limit == 0 {
		limit = api.DefaultOutputBytes
	}
	out, err := r.io.streams[0].excerptOf(res.From.Stdout, res.To.Stdout, limit)
	if err != nil {
		return res, err
	}
	errs, err := r.io.streams[1].excerptOf(res.From.Stderr, res.To.Stderr, limit)
	if err != nil {
		return res, err
	}
	res.Stdout, res.StdoutEncoding = out.Text(p.Encoding)
	res.Stderr, res.StderrEncoding = errs.Text(p.Encoding)
	res.Truncated = out.Omitted()+errs.Omitted() > 0
	return res, nil
}

// adoptShell takes over a shell of the hutchd before, whose exec was taken over. channel
// is nil when the shell was over by then.
func (m *Manager) adoptShell(r *running, note json.RawMessage, channel *os.File) {
	var c *shellapi.Client
	if channel != nil {
		c = shellapi.ResumeClient(channel)
	}
	sh := newShell(r, c)
	if c != nil {
		r.s.addShell(1)
		m.watchShell(sh)
	}
	var last shellNote
	if err := json.Unmarshal(note, &last); err != nil {
		r.stop(errGone) // it has not come up, and nobody was told that it would
		return
	}
	if last.Run > 0 {
		own, stop := context.WithCancelCause(context.Background())
		run := &shellRun{shellNote: last, stop: stop, done: make(chan struct{})}
		sh.last = run
		if last.End != nil {
			stop(nil)
			close(run.done)
		} else {
			m.watchers.Go(func() { m.follow(own, sh, run, "") })
		}
	}
	m.enterShell(sh)
}
