// Package sandbox is the life of sandboxes: create as ordered steps with their
// undo, exec, kill, remove. It holds no engine; images and the launcher come in
// through the small interfaces of deps.go.
package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/egress"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/files"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/meter"
	"github.com/hutch-sh/hutch/runtime/ports"
	"github.com/hutch-sh/hutch/runtime/refusals"
	"github.com/hutch-sh/hutch/runtime/shell"
	"github.com/hutch-sh/hutch/runtime/warm"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Config is everything a Manager needs; all fields are required but Events and Audit.
type Config struct {
	Dir      string // this daemon's folder for sandboxes; exists, empty
	Host     Host
	Settings Settings
	Kernel   Kernel
	Images   ImageSource
	Launcher Launcher
	Events   Events // nil discards
	Audit    Audit  // nil discards
	Networks Networks
	Cgroups  Cgroups
	Projects Projects // nil where there are no project quotas
	Seccomp  Seccomp
	Volumes  workspace.Volumes
	// Templates is called once, by NewManager; nil where there are none.
	Templates func(*Manager) Templates
	Shelf     *shelf.Store
	// Ephemeral says that what is stopped ends with the daemon.
	Ephemeral bool
	Logger    *slog.Logger
	Owner     uint32 // whose quotas the pools of the configuration count for
}

// Settings are what the configuration file says, and may change while the daemon runs.
type Settings struct {
	Exec     api.ExecBounds
	Defaults api.Limits // of sandboxes that ask for none
	Quotas   api.Quotas
	Network  api.NetPolicy // of sandboxes that ask for none
	Ready    int           // how many generic sandboxes wait for a create
	Pools    []api.PoolSpec
}

// Manager holds the sandboxes of one daemon. Its methods may be called from any
// goroutine.
type Manager struct {
	cfg Config
	// Scopes are those that they are found by.
	Scopes Scopes
	// Pauses are their pauses, and who may start something in them.
	Pauses *admission.Pauses
	// Files serves the files of sandboxes.
	Files *files.Files
	// Ports serves their ports.
	Ports *ports.Ports
	// Egress is what they may reach, Refusals reports what they were refused.
	Egress   *egress.Egress
	Refusals *refusals.Refusals
	// Execs are their commands, Shells those of them that are shells.
	Execs  *exec.Table
	Shells *shell.Shells
	// Workspaces serves the folders that they are given.
	Workspaces *workspace.Workspaces
	// Meters watch what they use, and of what how much they may.
	Meters *meter.Meters
	// Keep has what is kept of them: snapshots, and those that are stopped.
	Keep *keep.Keep
	// History has what their files were before the last calls.
	History *history.History
	// Ahead has those that were launched ahead, Pools those that were asked for ahead.
	Ahead *warm.Ahead[*generic, aheadKey]
	Pools *warm.Pools

	// ctx ends with Close; creates under way are cancelled by it.
	ctx       context.Context
	cancel    context.CancelCauseFunc
	wg        sync.WaitGroup // creates, and removals that run in the background
	templates Templates
	settings  atomic.Pointer[Settings]
	leaving   atomic.Bool // see Leave

	// watchers, and who follows an exec, end with their sandbox, as part of its removal.
	watchers crew
	backlog  // of removals

	// preparing is held by who prepares one of Ahead, and uses an image meanwhile that nobody has asked for just then.
	preparing sync.RWMutex

	trim *time.Timer // gives back memory, see trimAfter

	starts starts

	registry // of the sandboxes; with its lock
	journal
}

// NewManager makes a Manager without sandboxes.
func NewManager(cfg Config) *Manager {
	ctx, cancel := context.WithCancelCause(context.Background())
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	if cfg.Audit == nil {
		cfg.Audit = noAudit{}
	}
	m := &Manager{
		cfg: cfg, ctx: ctx, cancel: cancel, registry: newRegistry(), journal: journal{cfg.Events, cfg.Audit},
		backlog: newBacklog(),
	}
	m.Scopes = Scopes{m}
	if m.templates = (noTemplates{}); cfg.Templates != nil {
		m.templates = cfg.Templates(m)
	}
	m.Meters = newMeters(m)
	m.Ahead = warm.NewAhead(ctx, int(kindsAhead), aheadHost{m}, cfg.Logger)
	m.Pools = newPools(m)
	m.Keep = keep.New(keep.Config{
		Sandboxes: keepHost{m}, Images: cfg.Images, Shelf: cfg.Shelf, Dir: cfg.Dir, Kept: stoppedNames,
		Own: ownNames, DiskError: diskError,
	})
	m.History = history.New(history.Config{
		Sandboxes: historyHost{m}, Files: m.Keep, DiskError: diskError, Log: cfg.Logger,
	})
	m.Pauses = admission.New(ctx, admission.Config{Sandboxes: pauseHost{m}, Cgroups: cfg.Cgroups,
		Events: cfg.Events})
	m.Files = files.New(filesHost{m}, &m.watchers, cfg.Logger)
	m.Ports = ports.New(portsHost{m}, cfg.Logger)
	m.Egress = egress.New(egress.Config{
		Sandboxes: egressHost{m}, Networks: cfg.Networks, Cgroups: cfg.Cgroups, Write: writeJSON,
		EBPF: cfg.Host.EBPF.On, Reason: cfg.Host.EBPF.Reason,
	})
	m.Refusals = refusals.New(refusals.Config{
		Sandboxes: refusalsHost{m}, Seccomp: cfg.Seccomp, Events: cfg.Events, Log: cfg.Logger,
	})
	m.Execs = exec.New(exec.Config{
		Sandboxes: execHost{m}, Launcher: cfg.Launcher, Cgroups: cfg.Cgroups, Events: cfg.Events, Audit: cfg.Audit,
		Background: &m.watchers, Hard: cfg.Host.hard(), Log: cfg.Logger,
	})
	m.Shells = shell.New(shell.Config{
		Execs: m.Execs, Sandboxes: execHost{m}, Background: &m.watchers, Leaving: m.leaving.Load, Log: cfg.Logger,
	})
	m.Workspaces = workspace.New(workspacesHost{m}, cfg.Kernel, cfg.Volumes, workspace.Host{
		Dir: cfg.Dir, Forbidden: cfg.Host.Forbidden, Single: cfg.Host.UserMap == "single",
		Mapped: cfg.Host.FoldersMapped,
	}, cfg.Logger)
	m.trim = time.AfterFunc(trimAfter, debug.FreeOSMemory)
	m.Configure(cfg.Settings)
	return m
}

// trimAfter is how long no sandbox was created before what creating them took is given back
// to the system: a fifth of hutchd's memory after two hundred. The runtime's own way takes
// minutes, and needs garbage collections that an idle daemon has no reason for.
const trimAfter = 2 * time.Second

// Configure puts settings in force, for what starts from now on.
func (m *Manager) Configure(s Settings) {
	m.settings.Store(&s)
	m.Pools.Configure(s.Pools)
}

// Settings are those in force.
func (m *Manager) Settings() Settings { return *m.settings.Load() }

// ErrClosed is what is refused of a manager that was closed: nothing of the call was done.
var ErrClosed = api.Errorf(api.Unavailable, "the daemon is shutting down").
	WithHint("try again: a new daemon starts by itself")

// newID makes a short random id: 60 bits in 12 letters.
func newID(prefix string) string {
	return prefix + strings.ToLower(rand.Text()[:12])
}

// Counts are the sandboxes but those that are stopped for later, and the running execs, and since when there have been
// none.
func (m *Manager) Counts() (sandboxes, execs int, idleSince time.Time) {
	execs, last := m.Execs.Counts()
	m.mu.Lock()
	defer m.mu.Unlock()
	if last.After(m.lastBusy) {
		return m.count(), execs, last
	}
	return m.count(), execs, m.lastBusy
}

// Kill ends every process of a sandbox; its record and files stay.
func (m *Manager) Kill(ctx context.Context, ref string) (api.KillResult, error) {
	s, err := m.findStarted(ctx, ref)
	if err != nil {
		return api.KillResult{}, err
	}
	m.audit(ctx, s, "", api.AuditKillBox, nil, 0)
	res, err := m.kill(ctx, s, "killed")
	m.saveEnd(s)
	return res, err
}

func (m *Manager) kill(ctx context.Context, s *Sandbox, reason string) (api.KillResult, error) {
	if s.state() == api.Creating {
		return api.KillResult{}, api.Errorf(api.FailedPrecondition, "sandbox %s is still being created", s.id).
			WithHint("cancel the sandbox.create call instead")
	}
	killed := s.meter.PIDs()
	if !s.transition(api.Stopped, reason) { // already ended, or about to
		select {
		case <-s.exited:
			return api.KillResult{Killed: []int{}}, nil
		case <-ctx.Done():
			return api.KillResult{}, ctx.Err()
		}
	}
	// PID 1 takes its pid namespace along, while hutch-launch, which reaps it, is woken. Whatever that fails at: who
	// comes next waits for the end of PID 1.
	killErr := m.cfg.Kernel.Kill(s.pidfd)
	if err := m.cfg.Launcher.Kill(ctx, s.id); err != nil && killErr != nil {
		return api.KillResult{}, killErr
	}
	select {
	case <-s.exited:
	case <-ctx.Done():
		return api.KillResult{}, ctx.Err()
	}
	return api.KillResult{Killed: killed}, nil
}

// launcherGone reports whether err says that hutch-launch has ended. Sandboxes
// have then lost their parent, and hutchd ends them itself.
func launcherGone(err error) bool { return errors.Is(err, &api.Error{Code: api.Unavailable}) }

// removeLater removes s in the background: its time is up or its owner is gone.
func (m *Manager) removeLater(s *Sandbox, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(s, reason)
}

// removeLocked is removeLater for who holds mu.
func (m *Manager) removeLocked(s *Sandbox, reason string) {
	if m.closed {
		return // Close removes everything
	}
	m.wg.Go(func() {
		ctx := context.Background()
		if _, err := m.kill(ctx, s, reason); err != nil {
			m.cfg.Logger.Error("kill sandbox", "sandbox", s.id, "err", err)
		}
		_ = m.forget(s) // logged there
	})
}

// Exited is called when hutch-launch reports that a sandbox's PID 1 is gone.
func (m *Manager) Exited(e launchapi.Exited) {
	s := m.of(e.ID)
	if s == nil { // never finished being created, or already forgotten
		m.Ahead.Exited(e.ID)
		return
	}
	if !s.isPID1(e.PID) { // watchPID1 learns of one that ends while it is being created
		return
	}
	ws := syscall.WaitStatus(e.Status)
	reason := fmt.Sprintf("PID 1 exited with status %d", ws.ExitStatus())
	if ws.Signaled() {
		reason = fmt.Sprintf("PID 1 was killed by signal %d (%s)", ws.Signal(), ws.Signal())
	}
	if s.transition(api.Failed, reason) { // refused when a kill already made it stopped
		m.saveEnd(s)
	}
	s.markExited()
}

// saveEnd tells the next hutchd why a sandbox has ended; it would see that it has.
func (m *Manager) saveEnd(s *Sandbox) {
	if err := s.save(); err != nil && !errors.Is(err, os.ErrNotExist) { // removed meanwhile
		m.cfg.Logger.Warn("save the record of a sandbox", "sandbox", s.id, "err", err)
	}
}

// Disconnected removes the sandboxes that are tied to a connection that ended.
func (m *Manager) Disconnected(conn uint64) {
	m.mu.Lock()
	if m.creating[conn] > 0 {
		m.gone[conn] = true
	}
	var owned []*Sandbox
	for _, s := range m.byID {
		if s.conn == conn && s.spec.Owner == api.OwnerConnection && s.state() != api.Creating {
			owned = append(owned, s)
		}
	}
	for _, sc := range m.scopes {
		if sc.users[conn] {
			m.Scopes.leave(sc, conn)
		}
	}
	m.mu.Unlock()
	for _, s := range owned {
		m.removeLater(s, "its owner's connection ended")
	}
}

// Leave says that this hutchd ends and the next one goes on: calls that end now are not
// to end what they wait for in a shell.
func (m *Manager) Leave() { m.leaving.Store(true) }

// CloseEmpty closes the manager where Counts tells of no sandbox, so that none is made between the look and the end.
// What was closed is still to be ended with Close.
func (m *Manager) CloseEmpty() bool {
	m.mu.Lock()
	empty := m.count() == 0
	m.closed = m.closed || empty
	m.mu.Unlock()
	if empty {
		m.Pools.Shut()
	}
	return empty
}

// Close removes every sandbox and waits until nothing is left, or ctx ends: then the error says how much is. No sandbox
// can be created any more.
func (m *Manager) Close(ctx context.Context) error {
	m.Pools.Close()
	m.mu.Lock()
	m.closed = true
	m.trim.Stop()
	m.cancel(ErrClosed)
	m.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- m.closeAll(ctx) }() // ends with the process at the latest
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	return api.Errorf(api.Unavailable, "%d sandboxes are not removed, and %d removals not finished: %w",
		len(m.all()), m.Removing(), context.Cause(ctx)).WithHint("hutch gc sweeps what is left")
}

// closeAll is Close but for the bound.
func (m *Manager) closeAll(ctx context.Context) error {
	m.Pools.Wait()
	m.wg.Wait()
	m.Ahead.Close()
	all := m.all()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		if s.stopped && !m.cfg.Ephemeral {
			errs[i] = s.release() // the next daemon lists it
			continue
		}
		wg.Go(func() {
			_, err := m.kill(ctx, s, "the daemon ended")
			errs[i] = errors.Join(err, m.forget(s))
		})
	}
	wg.Wait()
	m.Settle(ctx)
	m.watchers.Wait(ctx)
	return errors.Join(append(errs, m.Keep.Close())...)
}
