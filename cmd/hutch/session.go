package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

const (
	// signalTimeout bounds the delivery of one signal: the next one, which may be
	// the one that ends the call, waits behind it.
	signalTimeout = time.Second
	// maxStdinText bounds the input of --json in bytes: it travels inside of the
	// request, and a request line has at most 4 MiB (JSON may double it).
	maxStdinText = 1 << 20
)

// session is one command run on behalf of the caller's terminal.
type session struct {
	client      *client.Client // see resume
	signals     *cli.Signals
	owner       uint32 // kernel uid of uid 0 in the sandbox
	interactive bool
	tty         bool
	private     bool // the daemon ends with this process
	owned       bool // the sandbox ends with the connection
	detachKeys  string
	twice       bool      // a second Ctrl-C ends a command that has the terminal
	comeBack    string    // the command that does, after the detach keys; "" is exec --attach
	fresh       *freshBox // the sandbox is made for the command, and ends with it; nil for one that there is

	mu sync.Mutex // guards client while the command runs
}

// conn is the connection to the daemon.
func (s *session) conn() *client.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// run runs p with the caller's stdin, stdout and stderr and returns when the
// command has ended and the last byte of its output is written.
func (s *session) run(ctx context.Context, p api.ExecParams) (_ *api.ExecResult, err error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	var keys *cli.DetachKeys
	if p.Detachable = s.tty && cli.IsTerminal(os.Stdin); p.Detachable {
		if keys, err = cli.ParseDetachKeys(s.detachKeys, s.leaver(leave)); err != nil {
			return nil, cli.Usage("hutch", err)
		}
		keys = s.interrupting(keys)
	}
	stdio, err := cli.OpenStdio(cli.StdioOptions{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Interactive: s.interactive, TTY: s.tty, Detach: keys, Owner: s.owner,
	})
	if err != nil {
		return nil, err
	}
	defer stdio.Close()
	restore := func() {}
	if s.tty {
		s.signals.Listen()
		if restore, err = cli.RawTerminal(os.Stdin); err != nil {
			return nil, err
		}
		defer restore()
		size := cli.TerminalSize(os.Stdin, os.Stdout)
		p.Pty = &size
		p.Env = withTerm(p.Env)
	}
	files := &client.Stdio{Stdin: stdio.Stdin, Stdout: stdio.Stdout, Stderr: stdio.Stderr}
	res, err := s.exec(ctx, p, files, stdio.Sent)
	if errors.Is(err, errDetached) {
		restore()
		return nil, detached(cmp.Or(s.comeBack, "hutch exec --attach "+res.Exec))
	}
	if err != nil {
		return nil, err
	}
	return &res, stdio.Finish(ctx)
}

// exec runs p and waits for its end, over the deaths of hutchd: the command goes on, and
// the next hutchd knows of it. sent is called when the daemon has the files.
func (s *session) exec(ctx context.Context, p api.ExecParams, files *client.Stdio, sent func()) (api.ExecResult,
	error) {
	// Chosen here, so that it is known also when the daemon cannot say it any more.
	p.Exec = cmp.Or(p.Exec, newExecID())
	if s.fresh == nil { // else it is done behind the call, see freshBox.call
		s.signals.Listen() // before the command can say anything: who then sends it a signal wants it to have that
	}
	started := s.started(ctx, p.Exec, sent)
	res, err := s.begin(ctx, p, files, started)
	lost := err
	for range maxResumes {
		if s.private || ctx.Err() != nil || !errors.Is(err, client.ErrLost) {
			break
		}
		res, err = s.resume(ctx, p, files, started)
	}
	switch {
	case err == nil || !p.Detachable || ctx.Err() == nil:
	case errors.Is(context.Cause(ctx), errDetached):
		res.Exec = p.Exec
		return res, errDetached
	default:
		s.kill(ctx, p.Exec)
	}
	if notFound(err) { // it was never started, or the sandbox is gone as well
		return res, lost
	}
	return res, err
}

func newExecID() string { return "ex_" + strings.ToLower(rand.Text()[:12]) }

// resume connects to the next hutchd, which it starts where that needs a new daemon, and
// waits for the command there.
func (s *session) resume(ctx context.Context, p api.ExecParams, files *client.Stdio,
	started func(api.Progress)) (api.ExecResult, error) {
	c, err := connect(ctx, false)
	if err != nil {
		return api.ExecResult{}, err
	}
	s.swap(c)
	if s.fresh != nil {
		return s.fresh.resume(ctx, s, p, files, started)
	}
	if s.owned {
		_, err = c.Claim(ctx, p.Sandbox)
	}
	if err != nil {
		return api.ExecResult{}, err
	}
	return c.ExecWait(ctx, api.WaitParams{Exec: p.Exec, Encoding: p.Encoding, OutputBytes: p.OutputBytes})
}

// swap goes on with another connection.
func (s *session) swap(c *client.Client) {
	s.mu.Lock()
	old := s.client
	s.client = c
	s.mu.Unlock()
	_ = old.Close()
}

// started answers the notification that the command runs, first by calling sent.
// From now on signals are the command's: those that come before its id is known
// wait for it.
func (s *session) started(ctx context.Context, exec string, sent func()) func(api.Progress) {
	early := &heldSignals{}
	if s.fresh != nil {
		s.signals.Started(s.target(ctx, exec)) // it may take long until there is a sandbox
	} else {
		s.signals.Started(cli.Target{Signal: early.hold})
	}
	return func(p api.Progress) {
		if p.Kind == api.ProgressStarted {
			sent()
			if s.fresh != nil {
				s.fresh.started(&p)
			}
			t := s.target(ctx, p.Exec)
			s.signals.Started(t)
			early.release(t.Signal)
		}
	}
}

// heldSignals are signals for a command that is just being started.
type heldSignals struct {
	mu    sync.Mutex
	names []string
}

func (h *heldSignals) hold(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = append(h.names, name)
	return true
}

func (h *heldSignals) release(to func(string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.names {
		to(name)
	}
	h.names = nil
}

// target forwards signals to an exec. A signal that comes too late finds no
// exec, which is no error; one that comes before there is a sandbox for it ends the call.
func (s *session) target(ctx context.Context, exec string) cli.Target {
	t := cli.Target{Signal: func(name string) bool {
		ctx, cancel := context.WithTimeout(ctx, signalTimeout)
		defer cancel()
		if s.fresh != nil {
			s.fresh.signalled.Store(true)
		}
		err := s.conn().Signal(ctx, exec, name)
		return s.fresh == nil || s.fresh.known.Load() || !notFound(err)
	}}
	if s.tty {
		t.Resize = func() {
			ctx, cancel := context.WithTimeout(ctx, signalTimeout)
			defer cancel()
			_ = s.conn().Resize(ctx, exec, cli.TerminalSize(os.Stdin, os.Stdout))
		}
	}
	return t
}

// capture runs p and returns its output in the result.
func (s *session) capture(ctx context.Context, p api.ExecParams) (*api.ExecResult, error) {
	if s.interactive {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdinText+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		if len(text) > maxStdinText {
			return nil, api.Errorf(api.ResourceExhausted,
				"standard input has more than %d bytes, the most that --json takes", maxStdinText).
				WithHint("leave out --json, or put the input into a workspace: --workspace DIR")
		}
		p.Stdin = string(text)
		if !utf8.Valid(text) {
			p.Stdin, p.Encoding = base64.StdEncoding.EncodeToString(text), api.Base64
		}
	}
	res, err := s.exec(ctx, p, nil, func() {})
	return &res, err
}

// withTerm adds the caller's kind of terminal, which the command's terminal
// passes through.
func withTerm(env map[string]string) map[string]string {
	kind := os.Getenv("TERM")
	if kind == "" {
		kind = "xterm"
	}
	with := map[string]string{"TERM": kind}
	for k, v := range env {
		with[k] = v
	}
	return with
}
