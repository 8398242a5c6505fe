package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

const (
	// maxShells bounds the shells of one sandbox.
	maxShells = 64
	// shellPatience is how long a shell may take to start, or to give up a command.
	// Then it is killed as a whole.
	shellPatience = 10 * time.Second
)

// shell is a stateful shell: an exec whose leader is a worker of hutch-init that keeps
// the shell (runtime/guest/shell.go). What the commands write is in the exec's spools,
// one behind the other; what becomes of them comes over a channel of the worker's, so
// that no output can be taken for it.
//
// hutchd alone holds the channel. When it is killed the channel ends, and with it the
// shell, after the command that runs: the next hutchd knows it as an exec only.
type shell struct {
	id string
	r  *running

	// busy is set by whoever uses what follows; there is one run at a time.
	busy atomic.Bool
	c    *shellapi.Client
	runs uint64
}

// OpenShell opens a shell.
func (m *Manager) OpenShell(ctx context.Context, p api.ShellParams) (api.Shell, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.Shell{}, err
	}
	if !s.addShell(1) {
		return api.Shell{}, api.Errorf(api.ResourceExhausted, "%d shells are open in sandbox %s", maxShells, s.id).
			WithHint("close some: shell.list, shell.close")
	}
	sh, err := m.startShell(ctx, p)
	if err != nil {
		s.addShell(-1)
		s.rearmIdle(m)
		return api.Shell{}, err
	}
	m.watchers.Go(func() {
		<-sh.r.done
		s.addShell(-1)
		s.rearmIdle(m)
		_ = sh.c.Close()
	})
	if err := m.awaitShell(ctx, sh); err != nil {
		return api.Shell{}, err
	}
	m.mu.Lock()
	if m.execs[sh.r.id] == sh.r { // not forgotten since
		m.shells[sh.id] = sh
	}
	m.mu.Unlock()
	s.rearmIdle(m)
	return sh.record(), nil
}

// addShell counts the shells, which do not keep a sandbox from being idle.
func (s *Sandbox) addShell(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shells+n > maxShells {
		return false
	}
	s.shells += n
	return true
}

// startShell starts the exec that is a shell.
func (m *Manager) startShell(ctx context.Context, p api.ShellParams) (*shell, error) {
	ours, theirs, err := streamPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	none := 0.0
	req := &ExecRequest{
		Params: api.ExecParams{
			Sandbox: p.Sandbox, User: p.User, Cwd: p.Cwd, Env: p.Env,
			Argv: []string{"sh"}, Background: true, TimeoutS: &none, // each run has its own
		},
		Started: func(string, int) {},
		channel: theirs,
	}
	r, err := m.startExec(ctx, req, false)
	if err != nil {
		ours.Close()
		code, err := notStarted(ctx, r, err)
		if code == 127 {
			err = api.Errorf(api.NotFound, "the sandbox has no shell: %w", err).WithHint("run programs of the image with exec.run and argv")
		}
		return nil, err
	}
	go r.follow()
	return &shell{id: r.shell, r: r, c: shellapi.NewClient(ours)}, nil
}

// streamPair makes a channel: ours does not block, theirs does.
func streamPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a channel: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "channel")
	if err := unix.SetNonblock(fds[0], true); err != nil {
		_ = unix.Close(fds[0])
		theirs.Close()
		return nil, nil, fmt.Errorf("make a channel: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "channel"), theirs, nil
}

// awaitShell waits until the shell has come up; one that does not is killed.
func (m *Manager) awaitShell(ctx context.Context, sh *shell) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shellPatience, api.Errorf(api.Unavailable, "the shell has not started within %v", shellPatience).
		WithHint("the sandbox is overloaded, or its shell reads something that never ends (ENV, BASH_ENV)"))
	defer cancel()
	ev, err := sh.c.Await(ctx, 0)
	if err == nil && ev.Ev == shellapi.EvUp {
		return nil
	}
	sh.r.stop(errKilled)
	<-sh.r.done
	if err != nil && ctx.Err() != nil {
		return err
	}
	text := ""
	if x, err := sh.r.io.streams[1].excerpt(1 << 10); err == nil {
		text, _ = x.text(api.Text)
	}
	return api.Errorf(api.FailedPrecondition, "the shell of the sandbox does not work: %.1024q", text).
		WithHint("run programs of the image with exec.run and argv")
}

func (sh *shell) record() api.Shell {
	return api.Shell{
		Shell: sh.id, Sandbox: sh.r.s.id, Exec: sh.r.id, PID: sh.r.exec.PID, Busy: sh.busy.Load(), Over: isClosed(sh.r.done),
	}
}

// Shells lists the shells of a sandbox, oldest first.
func (m *Manager) Shells(ref string) ([]api.Shell, error) {
	s, err := m.find(ref)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	var all []*shell
	for _, sh := range m.shells {
		if sh.r.s == s {
			all = append(all, sh)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b *shell) int { return cmp.Or(a.r.start.Compare(b.r.start), cmp.Compare(a.id, b.id)) })
	var list []api.Shell
	for _, sh := range all {
		list = append(list, sh.record())
	}
	return list, nil
}

func (m *Manager) findShell(id string) (*shell, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sh, ok := m.shells[id]; ok {
		return sh, nil
	}
	return nil, api.Errorf(api.NotFound, "no shell %q", id).
		WithHint("shell.open opens one; a shell is lost when the daemon is restarted or its sandbox removed")
}

// CloseShell kills a shell and everything it started.
func (m *Manager) CloseShell(ctx context.Context, p api.ShellRef) (api.ExecResult, error) {
	sh, err := m.findShell(p.Shell)
	if err != nil {
		return api.ExecResult{}, err
	}
	m.mu.Lock()
	delete(m.shells, sh.id)
	m.mu.Unlock()
	return m.KillExec(ctx, api.ExecRef{Exec: sh.r.id})
}

// RunShell runs a command in a shell.
func (m *Manager) RunShell(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	if err := p.Validate(); err != nil {
		return api.ShellResult{}, err
	}
	sh, err := m.findShell(p.Shell)
	if err != nil {
		return api.ShellResult{}, err
	}
	s := sh.r.s
	timeout, err := m.timeoutOf(s.limits().TimeoutS, &api.ExecParams{TimeoutS: p.TimeoutS}, 0)
	if err != nil {
		return api.ShellResult{}, err
	}
	leave, err := m.enter(ctx, s)
	if err != nil {
		return api.ShellResult{}, err
	}
	defer leave()
	if !sh.busy.CompareAndSwap(false, true) {
		return api.ShellResult{}, api.Errorf(api.FailedPrecondition, "a command runs in shell %s", sh.id).
			WithHint("wait for it, cancel its call, or open another shell")
	}
	defer sh.busy.Store(false)
	if isClosed(sh.r.done) {
		return api.ShellResult{}, api.Errorf(api.FailedPrecondition, "shell %s is over: its exit code was %d", sh.id, sh.r.outcome().ExitCode).
			WithHint("shell.open opens another")
	}
	s.beginCall()
	defer s.endCall(m)
	limited, cancel := s.clock.limit(ctx, time.Now().Add(timeout), s.clock.state().Total, errTimeout)
	defer cancel()
	leave() // PID 1 has nothing to do with it: it may be paused
	return m.runShell(ctx, limited, sh, &p)
}

// runShell runs a command in a shell that is the caller's. limited ends no later than
// ctx.
func (m *Manager) runShell(ctx, limited context.Context, sh *shell, p *api.ShellRunParams) (api.ShellResult, error) {
	r, start := sh.r, time.Now()
	res := api.ShellResult{Shell: sh.id, ExecResult: api.ExecResult{
		Exec: r.id, Killed: []int{}, Denials: []api.Denial{}, StdoutEncoding: api.Text, StderrEncoding: api.Text,
	}}
	res.From = r.lengths()
	cpu, _ := m.used(r)
	ev, err := sh.run(limited, p.Command)
	if err != nil {
		m.endShell(sh, err)
	}
	if err := ctx.Err(); err != nil {
		return api.ShellResult{}, context.Cause(ctx)
	}
	switch {
	case err != nil:
		res.Closed = true
		end := r.outcome()
		res.ExitCode, res.Signal, res.Verdict, res.Killed = end.ExitCode, end.Signal, end.Verdict, end.Killed
	case ev.Ev == shellapi.EvAborted:
		res.ExitCode, res.Signal, res.Verdict = 128+int(unix.SIGKILL), unix.SignalName(unix.SIGKILL), api.VerdictTimeoutWall
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
	res.DurationMS = ms(time.Since(start))
	after, memory := m.used(r)
	res.Peaks = api.Peaks{CPUMS: ms(max(0, after-cpu)), MemoryBytes: memory}
	return res, m.takeOutput(r, p, &res)
}

// run sends a command and waits for its end, or makes it when ctx ends. An error says
// that the shell can not go on.
func (sh *shell) run(ctx context.Context, command string) (shellapi.Event, error) {
	sh.runs++
	if err := sh.c.Send(shellapi.Request{Op: shellapi.OpRun, Run: sh.runs, Command: command}); err != nil {
		return shellapi.Event{}, err
	}
	ev, err := sh.c.Await(ctx, sh.runs)
	if err == nil || ctx.Err() == nil {
		return ev, err
	}
	cause := err
	if err := sh.c.Send(shellapi.Request{Op: shellapi.OpAbort, Run: sh.runs}); err != nil {
		return shellapi.Event{}, cause
	}
	patient, cancel := context.WithTimeout(context.Background(), shellPatience)
	defer cancel()
	if ev, err = sh.c.Await(patient, sh.runs); err != nil {
		return shellapi.Event{}, cause
	}
	return ev, nil
}

// endShell waits for the end of a shell that can not go on, and makes it.
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

// used is what the exec has used so far, where it has a cgroup that tells.
func (m *Manager) used(r *running) (cpu time.Duration, memory int64) {
	r.s.mu.Lock()
	name := r.group.Name
	r.s.mu.Unlock()
	if name != "" {
		cpu, memory, _ = m.cfg.Cgroups.Usage(r.s.cgroup, name)
	}
	return cpu, memory
}

// takeOutput adds what the command has written, all of which is in the pipes by now.
func (m *Manager) takeOutput(r *running, p *api.ShellRunParams, res *api.ShellResult) error {
	if !isClosed(r.done) { // its end has done that
		if _, err := m.cfg.Launcher.Flush(context.Background(), r.s.id, r.id); err != nil {
			return err
		}
	}
	res.To = r.lengths()
	limit := p.OutputBytes
	if limit == 0 {
		limit = api.DefaultOutputBytes
	}
	out, err := r.io.streams[0].excerptOf(res.From.Stdout, res.To.Stdout, limit)
	if err != nil {
		return err
	}
	errs, err := r.io.streams[1].excerptOf(res.From.Stderr, res.To.Stderr, limit)
	if err != nil {
		return err
	}
	res.Stdout, res.StdoutEncoding = out.text(p.Encoding)
	res.Stderr, res.StderrEncoding = errs.text(p.Encoding)
	res.Truncated = out.omitted()+errs.omitted() > 0
	return nil
}
