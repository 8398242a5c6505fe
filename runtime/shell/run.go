package shell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// runNote is what the next hutchd must know of a run, at hutch-launch before the
// worker hears of the run. A worker's memory would do for the result, but not for the
// deadline: it is the sandbox's.
type runNote struct {
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

// command is one in a shell, under way or ended.
type command struct {
	runNote
	stop context.CancelCauseFunc // ends it for the reason that is its cause
	done chan struct{}           // closed when End or err is set
	err  error
}

// sumOf tells a command from another one.
func sumOf(command string) string {
	sum := sha256.Sum256([]byte(command))
	return hex.EncodeToString(sum[:])
}

// Run runs a command in a shell, or waits for one that was run before. The end of
// ctx kills it.
func (m *Shells) Run(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	if err := p.Validate(); err != nil {
		return api.ShellResult{}, err
	}
	sh, err := m.find(p.Shell)
	if err != nil {
		return api.ShellResult{}, err
	}
	run, err := sh.again(&p)
	if run == nil && err == nil {
		run, err = m.begin(ctx, sh, &p)
	}
	if err != nil {
		return api.ShellResult{}, err
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		if m.cfg.Leaving() { // the next hutchd goes on
			return api.ShellResult{}, context.Cause(ctx)
		}
		run.stop(exec.ErrGone)
		<-run.done
	}
	if ctx.Err() != nil {
		return api.ShellResult{}, context.Cause(ctx)
	}
	if run.err != nil {
		return api.ShellResult{}, run.err
	}
	return sh.resultOf(run, &p)
}

// again finds the run that the caller wants once more.
func (sh *shell) again(p *api.ShellRunParams) (*command, error) {
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

// begin starts the next run.
func (m *Shells) begin(ctx context.Context, sh *shell, p *api.ShellRunParams) (*command, error) {
	s := sh.r.Sandbox()
	timeout, err := m.cfg.Execs.Timeout(s, p.TimeoutS)
	if err != nil {
		return nil, err
	}
	leave, err := s.Enter(ctx)
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
	run.Start, run.Paused = time.Now(), s.Commands().Clock.State().Total
	run.Until = run.Start.Add(timeout)
	run.From = sh.r.Lengths()
	sh.r.BeginWork() // what was refused between two commands was no command's
	run.CPU, _ = sh.r.Used()
	m.cfg.Background.Go(func() { m.follow(own, sh, run, p.Command) })
	return run, nil
}

// next makes the run that comes next the shell's last.
func (sh *shell) next(p *api.ShellRunParams, stop context.CancelCauseFunc) (*command, error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch last := sh.last; {
	case !isClosed(last.done):
		return nil, api.Errorf(api.FailedPrecondition, "a command runs in shell %s", sh.id).
			WithHint("wait for it, cancel its call, or open another shell")
	case isClosed(sh.r.Done()):
		return nil, api.Errorf(api.FailedPrecondition, "shell %s is over: its exit code was %d", sh.id, sh.r.Outcome().
			ExitCode).
			WithHint("shell.open opens another")
	case p.Run != 0 && p.Run != last.Run+1:
		return nil, api.Errorf(api.FailedPrecondition, "run %d of shell %s is not the next: the last was %d", p.Run,
			sh.id, last.Run).WithField("run").
			WithHint("leave run out, or give the number of the last and one; older results are not kept")
	default:
		sh.last = &command{runNote: runNote{Run: last.Run + 1, Sum: sumOf(p.Command)}, stop: stop,
			done: make(chan struct{})}
		return sh.last, nil
	}
}

// note puts a run on record for the next hutchd.
func (sh *shell) note(run *command) error {
	note, err := json.Marshal(run.runNote)
	if err != nil {
		return fmt.Errorf("note the command of a shell: %w", err)
	}
	return sh.r.Note(note)
}

// follow runs a command in the shell that is its own, and waits for its end, or makes it
// when own ends. Without a command it goes on where the hutchd before was killed.
func (m *Shells) follow(own context.Context, sh *shell, run *command, command string) {
	defer close(run.done)
	defer run.stop(nil)
	s := sh.r.Sandbox()
	s.BeginCall()
	defer s.EndCall()
	limited, stop := s.Commands().Clock.Limit(own, run.Until, run.Paused, exec.ErrTimeout)
	defer stop()
	req := shellapi.Request{Op: shellapi.OpAsk, Run: run.Run}
	if command != "" {
		req = shellapi.Request{Op: shellapi.OpRun, Run: run.Run, Command: command}
		if run.err = sh.note(run); run.err != nil {
			return
		}
		sh.audit(own, run, command)
	}
	defer sh.audit(context.Background(), run, "")
	ev, err := sh.ask(limited, req)
	if ev.Ev == shellapi.EvNever {
		sh.forget(run)
		return
	}
	end := sh.end(limited, run, ev, err)
	if end.Hint = s.Hint(end.ExitCode, command); end.Hint == "" && end.ExitCode != 0 {
		end.Hint = s.ForeignHint(nil, false)
	}
	if end.To, run.err = sh.r.LengthsNow(); run.err != nil {
		return
	}
	run.End = &end
	if err := sh.note(run); err != nil {
		m.cfg.Log.Debug("note the end of a command", "shell", sh.id, "err", err)
	}
}

// ask sends a request and waits for the end of its run, or makes it when ctx ends. An
// error says that the shell cannot go on.
func (sh *shell) ask(ctx context.Context, req shellapi.Request) (shellapi.Event, error) {
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
func (sh *shell) forget(run *command) {
	run.err = api.Errorf(api.Unavailable, "the daemon was restarted before the command began").WithHint("run it again")
	before := &command{runNote: runNote{Run: run.Run - 1}, done: make(chan struct{})}
	before.err = api.Errorf(api.FailedPrecondition, "the result of run %d of shell %s is not known any more",
		before.Run, sh.id).
		WithHint("its output is in the streams of exec %s", sh.r.ID())
	close(before.done)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.last = before
}

// end is the result of a run but for its output. err says that the shell cannot go
// on: it is over then.
func (sh *shell) end(limited context.Context, run *command, ev shellapi.Event,
	err error) api.ShellResult {
	r := sh.r
	res := api.ShellResult{Shell: sh.id, Run: run.Run, From: run.From, ExecResult: api.ExecResult{
		Exec: r.ID(), Killed: []int{}, StdoutEncoding: api.Text, StderrEncoding: api.Text,
	}}
	switch {
	case err != nil:
		sh.endAll(err)
		res.Closed = true
		end := r.Outcome()
		res.ExitCode, res.Signal, res.Verdict, res.Killed = end.ExitCode, end.Signal, end.Verdict, end.Killed
	case ev.Ev == shellapi.EvAborted:
		res.ExitCode, res.Signal, res.Verdict = 128+int(unix.SIGKILL), unix.SignalName(unix.SIGKILL),
			api.VerdictTimeoutWall
		if errors.Is(context.Cause(limited), exec.ErrGone) {
			res.Verdict = api.VerdictCanceled
		}
		res.Killed = append(res.Killed, ev.Killed...)
	case ev.Ev == shellapi.EvOver:
		sh.endAll(shellapi.ErrGone)
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
	r.LookWhy(res.Verdict != api.VerdictOK)
	res.Denials, res.Failures = refusals.Part(r.TakeRefused())
	res.Policy = r.Sandbox().Policy(res.Denials)
	res.Unguarded = r.Sandbox().Unguarded(r.ID())
	after, memory := r.Used()
	res.Peaks = api.Peaks{CPUMS: ms(max(0, after-run.CPU)), MemoryBytes: memory}
	return res
}

// endAll waits for the end of a shell that cannot go on, and makes it.
func (sh *shell) endAll(why error) {
	soon := time.NewTimer(shellPatience)
	defer soon.Stop()
	var late <-chan time.Time
	switch {
	case errors.Is(why, shellapi.ErrGone): // it ends by itself, unless its worker lies
		late = soon.C
	case errors.Is(why, exec.ErrTimeout):
		sh.r.Stop(exec.ErrTimeout)
	default:
		sh.r.Stop(exec.ErrGone)
	}
	select {
	case <-sh.r.Done():
	case <-late:
		sh.r.Stop(exec.ErrKilled)
		<-sh.r.Done()
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

// resultOf is the result of a run that has ended, with what its caller wants of the output.
func (sh *shell) resultOf(run *command, p *api.ShellRunParams) (api.ShellResult, error) {
	res := *run.End
	limit := p.OutputBytes
	if limit == 0 {
		limit = api.DefaultOutputBytes
	}
	out, errs, err := sh.r.Output(res.From, res.To, limit)
	if err != nil {
		return res, err
	}
	res.Stdout, res.StdoutEncoding = out.Text(p.Encoding)
	res.Stderr, res.StderrEncoding = errs.Text(p.Encoding)
	res.Truncated = out.Omitted()+errs.Omitted() > 0
	return res, nil
}

// audit notes a command: its beginning, or without one its end.
func (sh *shell) audit(ctx context.Context, run *command, command string) {
	kind, a := api.AuditShell, api.AuditShellRun{Shell: sh.id, Run: run.Run, Command: command}
	if command == "" {
		if kind = api.AuditShellEnd; run.err != nil {
			a.Error = run.err.Error()
		}
		if run.End != nil {
			code := run.End.ExitCode
			a.ExitCode, a.Verdict, a.DurationMS = &code, run.End.Verdict, run.End.DurationMS
		}
	}
	sh.r.Audit(ctx, kind, a, len(command))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
