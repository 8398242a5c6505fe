package sandbox

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// running is one exec under way.
type running struct {
	id     string
	s      *Sandbox
	exec   *guestapi.Exec
	master *os.File // of its terminal, nil without one
	start  time.Time
}

// ExecRequest is exec.run as it arrived.
type ExecRequest struct {
	Params  api.ExecParams
	FDs     Taker
	Started func(exec string, pid int) // called once the command runs; never nil
}

// killTimeout bounds how long PID 1 may take to report the end of an exec that
// was killed. A PID 1 that does not is hostile or stuck, and the sandbox goes.
const killTimeout = 10 * time.Second

// Run runs a command and returns when it has ended. When ctx ends first, the
// command and all it started are killed.
func (m *Manager) Run(ctx context.Context, req ExecRequest) (api.ExecResult, error) {
	p := &req.Params
	if err := p.Validate(); err != nil {
		return api.ExecResult{}, err
	}
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.ExecResult{}, err
	}
	if st := s.state(); st != api.Running {
		return api.ExecResult{}, api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(s.Record())).
			WithHint("create a new one, or remove it: hutch rm %s", s.id)
	}
	io, err := m.prepare(s, p, req.FDs)
	if err != nil {
		return api.ExecResult{}, err
	}
	r := &running{id: newID("ex_"), s: s, master: io.master, start: time.Now()}
	limited, cancel := s.limit(ctx, p)
	defer cancel()
	if err := m.launchExec(limited, r, p, io); err != nil {
		io.abort()
		return notRun(limited, r, err)
	}
	io.started()
	m.addExec(r)
	defer m.removeExec(r)
	req.Started(r.id, r.exec.PID)
	return m.await(ctx, limited, r, p, io)
}

// limit is ctx with the exec's timeout.
func (s *Sandbox) limit(ctx context.Context, p *api.ExecParams) (context.Context, context.CancelFunc) {
	timeout := s.spec.Limits.TimeoutS
	if p.TimeoutS != nil {
		timeout = *p.TimeoutS
	}
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, seconds(timeout), errTimeout)
}

// launchExec asks PID 1 to start the command. A PID 1 that says neither yes nor no
// has no more time than one that does not report an end: what it runs, if it
// runs anything, can be ended only with the sandbox.
func (m *Manager) launchExec(limited context.Context, r *running, p *api.ExecParams, io *stdio) error {
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
	r.exec, err = r.s.guest.Start(ctx, r.s.request(p), io.give)
	if err != nil && ctx.Err() != nil {
		m.removeLater(r.s, "its PID 1 did not start a command")
	}
	return err
}

func describe(r api.Sandbox) string {
	if r.Reason == "" {
		return string(r.State)
	}
	return string(r.State) + " (" + r.Reason + ")"
}

// request is what PID 1 is asked to run.
func (s *Sandbox) request(p *api.ExecParams) guestapi.Request {
	rec := s.Record()
	return guestapi.Request{
		Argv: p.Argv, Command: p.Command,
		Env:   s.environ(p),
		Cwd:   orElse(p.Cwd, rec.Workdir),
		MkCwd: p.Cwd == "",
		User:  orElse(p.User, rec.User),
		TTY:   p.Pty != nil,
	}
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

func (m *Manager) addExec(r *running) {
	m.mu.Lock()
	m.execs[r.id] = r
	m.mu.Unlock()
	r.s.mu.Lock()
	r.s.execs[r.id] = r
	if r.s.idle != nil {
		r.s.idle.Stop()
	}
	r.s.mu.Unlock()
}

func (m *Manager) removeExec(r *running) {
	m.mu.Lock()
	delete(m.execs, r.id)
	m.lastBusy = time.Now()
	m.mu.Unlock()
	r.s.mu.Lock()
	delete(r.s.execs, r.id)
	r.s.mu.Unlock()
	r.s.rearmIdle(m)
}

// await waits for the end of the leader and makes the result.
//
// limited is ctx with the exec's timeout.
func (m *Manager) await(ctx, limited context.Context, r *running, p *api.ExecParams, io *stdio) (api.ExecResult, error) {
	end, err := r.exec.Wait(limited)
	verdict := api.Verdict("")
	if err != nil && limited.Err() != nil {
		verdict = api.VerdictCanceled
		if errors.Is(context.Cause(limited), errTimeout) {
			verdict = api.VerdictTimeoutWall
		}
		end, err = m.end(r)
	}
	if err != nil {
		// PID 1 is gone, and with it everything in the sandbox.
		end = guestapi.Event{Status: int(unix.SIGKILL)}
		if verdict == "" {
			verdict = api.VerdictSandbox
		}
	}
	if err := io.gather(ctx); err != nil {
		m.cfg.Logger.Debug("collect output", "sandbox", r.s.id, "exec", r.id, "err", err)
	}
	if verdict == api.VerdictCanceled {
		return api.ExecResult{}, context.Cause(ctx)
	}
	res := result(r, end, verdict, p)
	io.fill(&res, p.Encoding)
	return res, nil
}

var errTimeout = errors.New("the exec's timeout is over")

// end kills the exec and all it left behind. A PID 1 that does not report it in
// time is not trusted any more: the whole sandbox is killed.
func (m *Manager) end(r *running) (guestapi.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := r.exec.Kill()
	if err == nil {
		var end guestapi.Event
		if end, err = r.exec.Wait(ctx); err == nil {
			return end, nil
		}
	}
	m.removeLater(r.s, "its PID 1 did not end an exec that was to be killed")
	return guestapi.Event{}, err
}

// result maps the end of a leader to exec.run's result.
func result(r *running, end guestapi.Event, verdict api.Verdict, p *api.ExecParams) api.ExecResult {
	ws := syscall.WaitStatus(end.Status)
	res := api.ExecResult{
		Exec: r.id, ExitCode: ws.ExitStatus(), Verdict: verdict,
		TimedOut:       verdict == api.VerdictTimeoutWall,
		DurationMS:     ms(time.Since(r.start)),
		Killed:         end.Killed,
		Denials:        []api.Denial{},
		StdoutEncoding: api.Text, StderrEncoding: api.Text,
	}
	if res.Killed == nil {
		res.Killed = []int{}
	}
	if ws.Signaled() {
		res.ExitCode = 128 + int(ws.Signal())
		res.Signal = unix.SignalName(ws.Signal())
	}
	if u := end.Usage; u != nil {
		res.Peaks = api.Peaks{MemoryBytes: u.MaxRSSKB << 10, CPUMS: float64(u.UserUS+u.SystemUS) / 1000}
	}
	if verdict == "" {
		res.Verdict = verdictOf(ws)
	}
	return res
}

func verdictOf(ws syscall.WaitStatus) api.Verdict {
	switch {
	case ws.Signaled():
		return api.VerdictSignal
	case ws.ExitStatus() != 0:
		return api.VerdictNonzero
	}
	return api.VerdictOK
}

// notRun maps a failed start: what the command line made impossible is a result,
// with the exit code that shells use; the rest is an error.
func notRun(ctx context.Context, r *running, err error) (api.ExecResult, error) {
	var se *guestapi.StartError
	switch {
	case errors.As(err, &se):
	case errors.Is(context.Cause(ctx), errTimeout):
		return result(r, guestapi.Event{Status: int(unix.SIGKILL)}, api.VerdictTimeoutWall, nil), nil
	default:
		return api.ExecResult{}, withCause(ctx, err)
	}
	res := result(r, guestapi.Event{}, api.VerdictNotRun, nil)
	res.Error = se.Message
	switch se.Reason {
	case guestapi.ReasonNotFound:
		res.ExitCode = 127
	case guestapi.ReasonNotExecutable:
		res.ExitCode = 126
	case guestapi.ReasonBadUser:
		return res, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("user").
			WithHint("name a user of the image's /etc/passwd, or ids that the sandbox has (see /proc/self/uid_map inside)")
	case guestapi.ReasonBadCwd:
		return res, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("cwd").WithHint("choose a folder that exists in the sandbox")
	case guestapi.ReasonTooBig:
		return res, api.Errorf(api.InvalidArgument, "%s", se.Message).WithField("argv").WithHint("pass large data on stdin or in a file")
	case guestapi.ReasonNoProcess:
		return res, api.Errorf(api.ResourceExhausted, "%s", se.Message).WithHint("end some processes in the sandbox, or raise limits.pids")
	default:
		return res, api.Errorf(api.Internal, "%s", se.Message).WithHint("the daemon's log may say more")
	}
	return res, nil
}

// fill puts captured output into res.
func (io *stdio) fill(res *api.ExecResult, want api.Encoding) {
	if io.stdout == nil {
		return
	}
	res.Stdout, res.StdoutEncoding = io.stdout.text(want)
	res.Stderr, res.StderrEncoding = io.stderr.text(want)
	res.Truncated = io.stdout.omitted()+io.stderr.omitted() > 0
}

func decode(text string, enc api.Encoding) ([]byte, error) {
	if enc != api.Base64 {
		return []byte(text), nil
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "stdin is not base64: %w", err).WithField("stdin").
			WithHint("encode it, or leave encoding out")
	}
	return data, nil
}

func (m *Manager) findExec(id string) (*running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.execs[id]; ok {
		return r, nil
	}
	return nil, api.Errorf(api.NotFound, "no running exec %q", id).WithHint("it may have ended already")
}

// Signal sends a signal to an exec's leader.
func (m *Manager) Signal(p api.SignalParams) error {
	r, err := m.findExec(p.Exec)
	if err != nil {
		return err
	}
	sig, err := parseSignal(p.Signal)
	if err != nil {
		return err
	}
	return r.exec.Signal(sig)
}

// parseSignal reads "SIGINT", "INT" or "2".
func parseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= 64 {
		return syscall.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	return 0, api.Errorf(api.InvalidArgument, "signal: %q is no signal", name).WithField("signal").WithHint("use a name such as SIGTERM, or 1 to 64")
}

// Resize sets the size of an exec's terminal.
func (m *Manager) Resize(p api.ResizeParams) error {
	r, err := m.findExec(p.Exec)
	if err != nil {
		return err
	}
	if r.master == nil {
		return api.Errorf(api.FailedPrecondition, "exec %s has no terminal", p.Exec).WithHint("start it with pty")
	}
	return setSize(r.master, p.Pty)
}
