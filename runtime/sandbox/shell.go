package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
)

const (
	// maxShells bounds the shells of one sandbox.
	maxShells = 64
	// shellStart is how long a shell may take to start: on a busy machine that can be long,
	// and nobody else waits for it.
	shellStart = 30 * time.Second
	// shellPatience is how long a shell may take to give up a command. Then it is killed as a
	// whole.
	shellPatience = 10 * time.Second
)

// shell is a stateful shell: an exec whose leader is a worker of hutch-init that keeps
// the shell (runtime/guest/shell.go). What the commands write is in the exec's spools,
// one behind the other; what becomes of them comes over a channel of the worker's, so
// that no output can be taken for it.
//
// hutch-launch holds hutchd's end of the channel, too, and a note about the last command
// (shellNote), so that the next hutchd goes on (resumeShell).
type shell struct {
	id string
	r  *running
	c  *shellapi.Client // for the run; nil when the shell was over before this hutchd

	mu   sync.Mutex
	last *shellRun // the run under way, or the one before; of number 0 before the first
}

func newShell(r *running, c *shellapi.Client) *shell {
	none := &shellRun{done: make(chan struct{})}
	close(none.done)
	return &shell{id: r.shell, r: r, c: c, last: none}
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
	m.watchShell(sh)
	if err := m.awaitShell(ctx, sh); err != nil {
		return api.Shell{}, err
	}
	if err := m.noteShell(sh); err != nil {
		return api.Shell{}, err
	}
	m.enterShell(sh)
	s.rearmIdle(m)
	return sh.record(), nil
}

// noteShell tells the next hutchd that a shell has come up; one without a note never has. Its caller will not know it,
// and so it is killed, when that fails.
func (m *Manager) noteShell(sh *shell) error {
	err := m.noteRun(sh, sh.last)
	if err != nil {
		sh.r.stop(errKilled)
		<-sh.r.done
	}
	return err
}

// watchShell closes the channel of a shell that is over.
func (m *Manager) watchShell(sh *shell) {
	m.watchers.Go(func() {
		<-sh.r.done
		sh.r.s.addShell(-1)
		sh.r.s.rearmIdle(m)
		_ = sh.c.Close()
	})
}

// enterShell lets a shell be found.
func (m *Manager) enterShell(sh *shell) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.execs[sh.r.id] == sh.r { // not forgotten since
		m.shells[sh.id] = sh
	}
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
		channel: theirs, kept: ours,
	}
	r, err := m.startExec(ctx, req, false)
	if err != nil {
		ours.Close()
		code, err := notStarted(ctx, r, err)
		if code == 127 {
			err = api.Errorf(api.NotFound, "the sandbox has no shell: %w", err).
				WithHint("run programs of the image with exec.run and argv")
		}
		return nil, err
	}
	m.watchers.Go(r.follow)
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

// awaitShell waits until the shell has come up; one that does not is killed.
func (m *Manager) awaitShell(ctx context.Context, sh *shell) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shellStart,
		api.Errorf(api.Unavailable, "the shell has not started within %v", shellStart).
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
		text, _ = x.Text(api.Text)
	}
	return api.Errorf(api.FailedPrecondition, "the shell of the sandbox does not work: %.1024q", text).
		WithHint("run programs of the image with exec.run and argv")
}

func (sh *shell) record() api.Shell {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return api.Shell{
		Shell: sh.id, Sandbox: sh.r.s.id, Exec: sh.r.id, PID: sh.r.exec.PID, Runs: sh.last.Run,
		Busy: !isClosed(sh.last.done), Over: isClosed(sh.r.done),
	}
}

// Shells lists the shells of a sandbox, oldest first.
func (m *Manager) Shells(_ context.Context, p api.SandboxParams) (api.Shells, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.Shells{}, err
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
	return api.Shells{Shells: list}, nil
}

func (m *Manager) findShell(id string) (*shell, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sh, ok := m.shells[id]; ok && m.byID[sh.r.s.id] == sh.r.s { // its sandbox is not being removed
		return sh, nil
	}
	return nil, api.Errorf(api.NotFound, "no shell %q", id).
		WithHint("shell.open opens one; a shell goes with its sandbox")
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
