// Package shell is stateful shells: commands run one after the other in one shell of a sandbox, whose state lasts.
//
// A shell is an exec whose leader is a worker of hutch-init that keeps it (runtime/guest/shell.go). What its commands
// write is in the exec's spools, one behind the other. What becomes of them comes over a channel of the worker's, so
// that no output can be taken for it. hutch-launch holds hutchd's end of the channel, too, and a note about the last
// command, so that the next hutchd goes on (Adopt).
//
// A shell is listed when it has come up (Open), until it is closed, or its exec is forgotten. A run is its last from
// next, which there is one of at a time, to the next one.
//
// Shells.mu guards which shells there are, shell.mu which run is the last one. Neither is held when something else is
// called.
package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

const (
	// shellStart is how long a shell may take to start: on a busy machine that can be long,
	// and nobody else waits for it.
	shellStart = 30 * time.Second
	// shellPatience is how long a shell may take to give up a command. Then it is killed as a
	// whole.
	shellPatience = 10 * time.Second
)

// Config is what Shells need. All fields are required.
type Config struct {
	Execs      *exec.Table
	Sandboxes  exec.Sandboxes
	Background exec.Background // waits for who follows runs
	// Leaving reports whether this hutchd ends and the next one goes on: calls that end then do not end what they wait
	// for.
	Leaving func() bool
	Log     *slog.Logger
}

// Shells are those of all sandboxes. Its methods may be called from any goroutine.
type Shells struct {
	cfg Config

	mu  sync.Mutex
	all map[string]*shell
}

// New makes them, of which there is none yet.
func New(cfg Config) *Shells { return &Shells{cfg: cfg, all: map[string]*shell{}} }

// shell is one of them.
type shell struct {
	id string
	r  *exec.Exec
	c  *shellapi.Client // for the run; nil when the shell was over before this hutchd

	mu   sync.Mutex
	last *command // the run under way, or the one before; of number 0 before the first
}

func newShell(r *exec.Exec, c *shellapi.Client) *shell {
	none := &command{done: make(chan struct{})}
	close(none.done)
	return &shell{id: r.Shell(), r: r, c: c, last: none}
}

// Open opens a shell.
func (m *Shells) Open(ctx context.Context, p api.ShellParams) (api.Shell, error) {
	s, err := m.cfg.Sandboxes.Find(p.Sandbox)
	if err != nil {
		return api.Shell{}, err
	}
	if !s.Commands().AddKept(1) {
		return api.Shell{}, api.Errorf(api.ResourceExhausted, "%d shells are open in sandbox %s", exec.MaxKept, s.ID()).
			WithHint("close some: shell.list, shell.close")
	}
	s.BeginCall() // until it is there
	defer s.EndCall()
	sh, err := m.start(ctx, p)
	if err != nil {
		s.Commands().AddKept(-1)
		return api.Shell{}, err
	}
	m.watch(sh)
	if err := m.await(ctx, sh); err != nil {
		return api.Shell{}, err
	}
	if err := sh.noteUp(); err != nil {
		return api.Shell{}, err
	}
	m.enter(sh)
	return sh.record(), nil
}

// noteUp tells the next hutchd that a shell has come up; one without a note never has. Its caller will not know it,
// and so it is killed, when that fails.
func (sh *shell) noteUp() error {
	err := sh.note(sh.last)
	if err != nil {
		sh.r.Stop(exec.ErrKilled)
		<-sh.r.Done()
	}
	return err
}

// watch closes the channel of a shell that is over.
func (m *Shells) watch(sh *shell) {
	m.cfg.Background.Go(func() {
		<-sh.r.Done()
		sh.r.Sandbox().Commands().AddKept(-1)
		_ = sh.c.Close()
	})
}

// enter lets a shell be found, and forgets those whose execs are forgotten.
func (m *Shells) enter(sh *shell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[sh.id] = sh
	m.sweep()
}

// sweep forgets shells whose execs are forgotten; mu is held.
func (m *Shells) sweep() {
	maps.DeleteFunc(m.all, func(_ string, sh *shell) bool { return isClosed(sh.r.Forgotten()) })
}

// Left counts the shells, for who looks whether something was left.
func (m *Shells) Left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	return len(m.all)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start starts the exec that is a shell.
func (m *Shells) start(ctx context.Context, p api.ShellParams) (*shell, error) {
	ours, theirs, err := streamPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	none := 0.0
	r, err := m.cfg.Execs.StartShell(ctx, api.ExecParams{
		Sandbox: p.Sandbox, User: p.User, Cwd: p.Cwd, Env: p.Env,
		Argv: []string{"sh"}, Background: true, TimeoutS: &none, // each run has its own
	}, theirs, ours)
	if err != nil {
		ours.Close()
		code, err := exec.StartError(ctx, err)
		if code == 127 {
			err = api.Errorf(api.NotFound, "the sandbox has no shell: %w", err).
				WithHint("run programs of the image with exec.run and argv")
		}
		return nil, err
	}
	return newShell(r, shellapi.NewClient(ours)), nil
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

// await waits until the shell has come up; one that does not is killed.
func (m *Shells) await(ctx context.Context, sh *shell) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shellStart,
		api.Errorf(api.Unavailable, "the shell has not started within %v", shellStart).
			WithHint("the sandbox is overloaded, or its shell reads something that never ends (ENV, BASH_ENV)"))
	defer cancel()
	ev, err := sh.c.Await(ctx, 0)
	if err == nil && ev.Ev == shellapi.EvUp {
		return nil
	}
	sh.r.Stop(exec.ErrKilled)
	<-sh.r.Done()
	if err != nil && ctx.Err() != nil {
		return err
	}
	text := ""
	to := sh.r.Lengths()
	if _, x, err := sh.r.Output(api.Offsets{}, to, 1<<10); err == nil {
		text, _ = x.Text(api.Text)
	}
	return api.Errorf(api.FailedPrecondition, "the shell of the sandbox does not work: %.1024q", text).
		WithHint("run programs of the image with exec.run and argv")
}

func (sh *shell) record() api.Shell {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return api.Shell{
		Shell: sh.id, Sandbox: sh.r.Sandbox().ID(), Exec: sh.r.ID(), PID: sh.r.PID(), Runs: sh.last.Run,
		Busy: !isClosed(sh.last.done), Over: isClosed(sh.r.Done()),
	}
}

// List lists the shells of a sandbox, oldest first.
func (m *Shells) List(_ context.Context, p api.SandboxParams) (api.Shells, error) {
	s, err := m.cfg.Sandboxes.Find(p.Sandbox)
	if err != nil {
		return api.Shells{}, err
	}
	set := s.Commands()
	m.mu.Lock()
	m.sweep()
	var all []*shell
	for _, sh := range m.all {
		if sh.r.Sandbox().Commands() == set {
			all = append(all, sh)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b *shell) int {
		return cmp.Or(a.r.Started().Compare(b.r.Started()), cmp.Compare(a.id, b.id))
	})
	var list []api.Shell
	for _, sh := range all {
		list = append(list, sh.record())
	}
	return api.Shells{Shells: list}, nil
}

func (m *Shells) find(id string) (*shell, error) {
	m.mu.Lock()
	sh := m.all[id]
	m.mu.Unlock()
	if sh != nil && !isClosed(sh.r.Forgotten()) && sh.r.Sandbox().Here() { // its sandbox is not being removed
		return sh, nil
	}
	return nil, api.Errorf(api.NotFound, "no shell %q", id).
		WithHint("shell.open opens one; a shell goes with its sandbox")
}

// Close kills a shell and everything it started.
func (m *Shells) Close(ctx context.Context, p api.ShellRef) (api.ExecResult, error) {
	sh, err := m.find(p.Shell)
	if err != nil {
		return api.ExecResult{}, err
	}
	m.mu.Lock()
	delete(m.all, sh.id)
	m.mu.Unlock()
	return m.cfg.Execs.Kill(ctx, api.ExecRef{Exec: sh.r.ID()})
}

// Adopt takes over a shell of the hutchd before, whose exec was taken over, by the note about its last run. channel is
// nil when the shell was over by then.
func (m *Shells) Adopt(r *exec.Exec, note json.RawMessage, channel *os.File) {
	var c *shellapi.Client
	if channel != nil {
		c = shellapi.ResumeClient(channel)
	}
	sh := newShell(r, c)
	if c != nil {
		r.Sandbox().Commands().AddKept(1)
		m.watch(sh)
	}
	var last runNote
	if err := json.Unmarshal(note, &last); err != nil {
		r.Stop(exec.ErrGone) // it has not come up, and nobody was told that it would
		return
	}
	if last.Run > 0 {
		own, stop := context.WithCancelCause(context.Background())
		run := &command{runNote: last, stop: stop, done: make(chan struct{})}
		sh.last = run
		if last.End != nil {
			stop(nil)
			close(run.done)
		} else {
			m.cfg.Background.Go(func() { m.follow(own, sh, run, "") })
		}
	}
	m.enter(sh)
}
