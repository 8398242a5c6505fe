package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/servers"
)

// What a template starts in each of its sandboxes, and waits for, before somebody gets it.

// The pauses between two tries of a command that says whether a sandbox is ready, and the most that one try may take.
const (
	minReadyPause = 25 * time.Millisecond
	maxReadyPause = time.Second
	maxReadyTry   = 30 * time.Second
)

// maxFailedOutput is how much of a failed command's output goes into an error, of each stream.
const maxFailedOutput = 4 << 10

// startUp starts what the template says, waits until that is ready, and exposes its ports. Until it is done, a hutchd
// that comes next removes the sandbox: nobody has it yet.
func startUp(ctx context.Context, m *Manager, s *Sandbox) error {
	t, w := s.templated, &wait{m: m, s: s}
	start := time.Now()
	if t.Start != nil {
		if err := w.start(ctx, t.Start); err != nil {
			return err
		}
	}
	if t.Ready != nil {
		if err := w.await(ctx, t.Ready); err != nil {
			return err
		}
	}
	for _, p := range t.Ports {
		_, err := m.Ports.Expose(ctx, api.PortExposeParams{Sandbox: s.id, Port: p.Port, Address: p.Address,
			Token: p.Token}, nil)
		if err != nil {
			return fmt.Errorf("port %d of template %s: %w", p.Port, t.Name, err)
		}
	}
	s.mu.Lock()
	s.unready = false
	if s.record.PhasesMS != nil { // a copy: who asks for the record has this one
		phases := map[string]float64{"start_up": ms(time.Since(start))}
		for k, v := range s.record.PhasesMS {
			phases[k] = v
		}
		s.record.PhasesMS = phases
	}
	s.mu.Unlock()
	if s.waits() { // the pool makes it wait, when it is listed there
		return s.saveAs(api.Waiting)
	}
	return s.save()
}

// start starts the command.
func (w *wait) start(ctx context.Context, c *api.TemplateStart) error {
	p := api.ExecParams{Sandbox: w.s.id, Argv: c.Argv, Command: c.Command, Env: c.Env, Cwd: c.Cwd, User: c.User,
		Background: true}
	res, err := w.m.Execs.Start(ctx, exec.Request{Params: p, Started: func(string, int) {}})
	if err != nil {
		return fmt.Errorf("start the command of template %s: %w", w.s.templated.Name, err)
	}
	w.s.note(func(r *api.Sandbox) { r.Start = res.Exec })
	w.started, err = w.m.Execs.Find(res.Exec)
	return err
}

// await waits for what ready names. A command that was started and fails meanwhile ends that.
func (w *wait) await(ctx context.Context, ready *api.TemplateReady) error {
	most := seconds(ready.TimeoutS)
	if most == 0 {
		most = api.DefaultReadyS * time.Second
	}
	waiting, cancel := context.WithTimeoutCause(ctx, most, errNotReady)
	defer cancel()
	trying, stopTrying := context.WithCancelCause(waiting)
	defer stopTrying(nil)
	ended := make(chan struct{}) // the command, by itself, and not well
	if w.started != nil {
		go func() {
			select {
			case <-w.started.Done():
				if code := w.started.Outcome().ExitCode; code != 0 {
					close(ended)
					stopTrying(errStartFailed) // or it would be heard of behind the end of a try
				}
			case <-waiting.Done():
			}
		}()
	}
	w.ready, w.ended = ready, ended
	if ready.Port != 0 {
		return w.forPort(ctx, waiting)
	}
	return w.forCommand(ctx, waiting, trying)
}

// errStartFailed is why a try ends.
var errStartFailed = errors.New("what the template starts has failed")

// errNotReady is why a ready check ends.
var errNotReady = errors.New("the time of the ready check is over")

// wait is one ready check.
type wait struct {
	m       *Manager
	s       *Sandbox
	ready   *api.TemplateReady
	started *exec.Exec
	ended   <-chan struct{}
}

// forPort waits until something listens: PID 1 tells of each listen(2).
func (w *wait) forPort(ctx, waiting context.Context) error {
	for {
		looked := w.s.servers.Next()
		if servers.On(serversBox{w.m, w.s}, w.ready.Port) {
			return nil
		}
		select {
		case <-looked:
		case <-w.ended:
			return w.startFailed()
		case <-w.s.exited:
			return w.sandboxEnded()
		case <-waiting.Done():
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return w.notReady(fmt.Sprintf("nothing listens on port %d", w.ready.Port),
				api.FailedStep{Text: fmt.Sprintf("port %d", w.ready.Port)})
		}
	}
}

// forCommand tries the command until it succeeds. A try ends with trying.
func (w *wait) forCommand(ctx, waiting, trying context.Context) error {
	pause := minReadyPause
	var last api.ExecResult
	for {
		most := maxReadyTry.Seconds()
		if until, ok := waiting.Deadline(); ok {
			most = min(most, max(0.001, time.Until(until).Seconds()))
		}
		res, err := w.m.Execs.Run(trying, exec.Request{Params: api.ExecParams{
			Sandbox: w.s.id, Argv: w.ready.Argv, Command: w.ready.Command, TimeoutS: &most,
			OutputBytes: maxFailedOutput,
		}, Started: func(string, int) {}})
		select {
		case <-w.ended:
			return w.startFailed()
		default:
		}
		switch {
		case err == nil && res.Verdict == api.VerdictOK:
			return nil
		case err == nil && last.Exec != "" && res.Verdict == api.VerdictTimeoutWall && most < maxReadyTry.Seconds():
			// The check's own end has cut it short: the one before says what was wrong.
		case err == nil:
			last = res
		case waiting.Err() == nil:
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, maxReadyPause)
		case <-w.ended:
			timer.Stop()
			return w.startFailed()
		case <-w.s.exited:
			timer.Stop()
			return w.sandboxEnded()
		case <-waiting.Done():
			timer.Stop()
			if err := context.Cause(ctx); err != nil {
				return err
			}
			text := commandText(w.ready.Argv, w.ready.Command)
			return w.notReady(fmt.Sprintf("%q ends with %d", text, last.ExitCode), api.FailedStep{
				Text: text, ExitCode: last.ExitCode, Verdict: last.Verdict, Output: last.Stdout + last.Stderr,
			})
		}
	}
}

func commandText(argv []string, command string) string {
	step := api.TemplateStep{Argv: argv, Run: command}
	return step.String()
}

// notReady is the error of a check whose time is over. What the started command has written says most, where the check
// says nothing.
func (w *wait) notReady(why string, f api.FailedStep) error {
	f.What = "ready"
	if w.started != nil {
		f.Output = strings.TrimSpace(f.Output + "\n" + w.started.Tail(maxFailedOutput))
	}
	s := w.ready.TimeoutS
	if s == 0 {
		s = api.DefaultReadyS
	}
	return api.Errorf(api.DeadlineExceeded, "a sandbox of template %s is not ready after %g s: %s%s",
		w.s.templated.Name, s, why, quoted(f.Output)).WithFailed(f).
		WithHint("correct start or ready of the template, or give ready.timeout_s more seconds")
}

// startFailed is the error of a command that has ended before it was ready.
func (w *wait) startFailed() error {
	end, p := w.started.Outcome(), w.started.Params()
	f := api.FailedStep{What: "start", Text: commandText(p.Argv, p.Command),
		ExitCode: end.ExitCode, Verdict: end.Verdict, Output: w.started.Tail(maxFailedOutput)}
	return api.Errorf(api.FailedPrecondition, "the command of template %s, %q, ended with %d before it was ready%s",
		w.s.templated.Name, f.Text, end.ExitCode, quoted(f.Output)).
		WithFailed(f).WithHint("try it in a sandbox: hutch run --template %s runs another command only when the template has no start", w.s.templated.Name)
}

func (w *wait) sandboxEnded() error {
	return api.Errorf(api.FailedPrecondition, "the sandbox of template %s ended before it was ready",
		w.s.templated.Name).
		WithHint("the daemon's log says more")
}

// quoted is output for the end of an error.
func quoted(output string) string {
	if output = strings.TrimSpace(output); output == "" {
		return ""
	}
	return ":\n" + output
}
