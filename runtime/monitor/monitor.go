// Package monitor is the part of the daemon that stays in the caller's user
// namespace: it owns the folders and the socket, obtains the cgroups, starts
// hutch-launch and through it hutchd in a namespace of their own, authenticates
// clients and hands their connections in.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/config"
	"github.com/hutch-sh/hutch/internal/harden"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// Options is what Run needs.
type Options struct {
	Paths paths.Paths
	// Private, when set, is the one connection of a private daemon: no socket is
	// bound, and the daemon ends when the other end is closed. Run owns it.
	Private *os.File
	// Keep makes the end of ctx leave the sandboxes to the next daemon.
	Keep bool
	// Reload makes the monitor read the configuration file again. It may be nil.
	Reload <-chan os.Signal
	// Ready is called once: with nil when the daemon serves, or with why it does not.
	Ready  func(error)
	Logger *slog.Logger
}

const (
	startTimeout = 30 * time.Second // for hutch-launch and hutchd to come up
	stopTimeout  = 30 * time.Second // for hutchd to remove its sandboxes
)

// monitor is one running daemon, seen from outside.
type monitor struct {
	opts Options
	log  *slog.Logger

	tree     *cgroups.Tree
	ids      bootstrap.IDMap
	launcher *bootstrap.Launcher
	binary   *os.File // hutchd's, so that a crash does not change the build
	enforced func()   // waits for the next two
	ebpf     monitorapi.EBPF
	maps     []*os.File // of eBPF programs; none after a takeover
	listener *listener

	stopping  chan struct{} // closed when hutchd was asked to stop
	keep      bool          // and is to leave its sandboxes; set before that
	stopOnce  sync.Once
	announced sync.Once

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	hutchd  *hutchd // that takes connections; nil between two
	over    bool    // none will come any more
	file    config.Config
}

// Run starts a daemon and returns when it has ended and nothing of it is left.
// The end of ctx ends it.
func Run(ctx context.Context, opts Options) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &monitor{opts: opts, log: opts.Logger, stopping: make(chan struct{})}
	m.changed.L = &m.mu
	defer func() { m.announce(err) }()
	var undo cleanup.Stack
	defer undo.Run(&err)

	if err := m.prepare(&undo); err != nil {
		return explain(ctx, err)
	}
	if err := m.start(ctx, &undo); err != nil {
		return explain(ctx, err)
	}
	// Not before: newuidmap and hutch-netd need the rights of their files, and sandboxes would
	// inherit the filter.
	if err := harden.Process(); err != nil {
		return err
	}
	left, err := m.serve(ctx)
	if left {
		undo.Release() // all of it is the next monitor's
		return errors.Join(err, m.launcher.Leave())
	}
	return err
}

// announce reports the outcome of the start, once.
func (m *monitor) announce(err error) {
	m.announced.Do(func() { m.opts.Ready(err) })
}

// prepare takes what the daemon needs of the host, before any process exists.
func (m *monitor) prepare(undo *cleanup.Stack) error {
	// Sandboxes must not possess the caller's session keyring. Keyrings belong to
	// threads: this is the one that starts hutch-launch, since Run's goroutine is
	// locked to it.
	// Where an outer sandbox refuses the call, it refuses it to sandboxes as well.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("join a session keyring of its own: %w", err)
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	allowCoreLimit()
	if err := m.opts.Paths.MakeDirs(); err != nil {
		return err
	}
	if m.file, err = m.load(); err != nil { // nobody else is there yet
		return err
	}
	if m.opts.Private == nil {
		if err := m.listen(undo); err != nil {
			return err
		}
		digest := m.opts.Paths.ConfigDigest()
		undo.Add(func() error { _ = os.Remove(digest); return nil }) // there may be none
		m.publish(&m.file)
	}
	base, err := m.makeData()
	if err != nil {
		return err
	}
	if m.ids, err = bootstrap.PlanIDMap(base); err != nil {
		return err
	}
	if m.ids.Reason != "" {
		m.log.Warn("only one uid is mapped", "why", m.ids.Reason)
	}
	return nil
}

// allowCoreLimit raises a hard limit of core files of 0, as sudo(8) leaves it, where this
// process may: sandboxes have 1, because only that keeps the kernel from running the
// program of core_pattern (fs/coredump.c).
func allowCoreLimit() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &l) == nil && l.Max == 0 {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: 1}) // creates say what is missing
	}
}

// start brings hutch-launch and hutchd up and waits until hutchd serves.
func (m *monitor) start(ctx context.Context, undo *cleanup.Stack) error {
	binary, _, err := open("hutchd")
	if err != nil {
		return err
	}
	m.binary = binary[0]
	undo.Add(m.binary.Close)
	bounded, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := m.takeOver(bounded)
	if err != nil {
		return err
	}
	if found {
		if err := m.startHutchd(ctx); err != nil {
			// The sandboxes are worth another try, by another build perhaps.
			return errors.Join(err, m.launcher.Leave())
		}
		undo.Add(m.tree.Remove)
	} else if err := m.delegate(ctx, undo); err != nil {
		return err
	}
	undo.Add(m.endTakeover)
	undo.Add(killOrphans) // runs after what follows
	undo.Add(m.endHutchd)
	if !found {
		if err := m.launch(bounded); err != nil {
			return err
		}
	}
	// Ends hutch-launch and hutchd with all sandboxes; after a regular end it only
	// releases fds.
	undo.Add(m.launcher.Close)
	if found {
		return nil
	}
	m.enforced()
	if err := m.leaveNote(); err != nil {
		return err
	}
	return m.startHutchd(ctx)
}

// delegate makes the cgroups of a new hutch-launch.
func (m *monitor) delegate(ctx context.Context, undo *cleanup.Stack) error {
	m.sweep(undo)
	uid, gid := int(m.ids.UIDs[0].Outside), int(m.ids.GIDs[0].Outside)
	var err error
	if m.tree, err = cgroups.Delegate(os.Geteuid(), uid, gid, func() error { return enterScope(ctx) }); err != nil {
		return err
	}
	undo.Add(m.tree.Remove)
	m.enforced = m.enforce()
	undo.Add(func() error { m.enforced(); return m.closeMaps() }) // before the tree goes
	return m.tree.Enter(os.Getpid())                              // hutch-launch and hutchd inherit it
}

// endHutchd waits until hutchd is gone, which hutch-launch normally did: a hutchd
// that outlived it removes its sandboxes first.
func (m *monitor) endHutchd() error {
	m.mu.Lock()
	h := m.hutchd
	m.hutchd = nil
	m.mu.Unlock()
	if h == nil {
		return nil
	}
	_ = h.conn.Close()
	late := time.AfterFunc(stopTimeout, func() { _ = sys.KillPidfd(h.pidfd) })
	defer late.Stop()
	return errors.Join(sys.AwaitExit(h.pidfd), h.pidfd.Close())
}

// serve hands connections in until the daemon ends. It reports whether sandboxes live
// on without it.
func (m *monitor) serve(ctx context.Context) (left bool, err error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan bool, 1)
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		ended <- m.watch(ctx)
	})
	wg.Go(func() { m.reloads(m.opts.Reload, done) })
	wg.Go(func() { m.watchState(done) })
	if m.listener != nil {
		wg.Go(m.accept)
		defer m.listener.Close()
	} else {
		lease, err := duplicate(m.opts.Private)
		if err != nil {
			return false, err
		}
		wg.Go(func() { m.watchLease(lease, done) })
		if err := m.handOver(m.opts.Private); err != nil {
			return false, err
		}
	}
	m.announce(nil)

	select {
	case left = <-ended:
	case <-ctx.Done():
		late := time.After(stopTimeout)
		go m.stop("the daemon got a signal", m.opts.Keep) // hutchd may hang, or just be replaced
		select {
		case left = <-ended:
		case <-late:
			if left = m.opts.Keep && m.endStuck(ended); left {
				break
			}
			m.log.Error("hutchd did not stop in time; its sandboxes are killed")
			return false, m.launcher.Close()
		}
	}
	if left {
		return true, nil
	}
	code, err := m.end()
	if err != nil {
		return false, fmt.Errorf("wait for hutch-launch: %w", err)
	}
	if code != 0 {
		return false, api.Errorf(api.Internal, "the daemon ended with status %d", code).
			WithHint("its last words are in %s", m.opts.Paths.Log)
	}
	return false, nil
}

// endStuck kills a hutchd that does not stop; its sandboxes are the next daemon's, as if
// it had. It reports whether that is so: hutch-launch may hang, too.
func (m *monitor) endStuck(ended <-chan bool) (left bool) {
	m.log.Error("hutchd did not stop in time; it is killed, and its sandboxes are kept")
	m.mu.Lock()
	if m.hutchd != nil {
		_ = sys.KillPidfd(m.hutchd.pidfd) // that it has gone meanwhile is as good
	}
	m.mu.Unlock()
	select {
	case left = <-ended:
		return left
	case <-time.After(stopTimeout):
		return false
	}
}

// end waits for the end of hutch-launch, which it asks for where hutchd has not brought
// it about.
func (m *monitor) end() (code int, err error) {
	m.mu.Lock()
	crashed := m.hutchd == nil
	m.mu.Unlock()
	if crashed {
		m.launcher.End()
	}
	return m.launcher.Wait()
}

// stop asks hutchd to remove everything and exit, or with keep only to exit.
func (m *monitor) stop(reason string, keep bool) {
	m.stopOnce.Do(func() {
		m.keep = keep
		close(m.stopping)
		if m.listener != nil {
			_ = m.listener.Close() // who comes now is for the next daemon
		}
		h := m.next(nil)
		if h == nil {
			return
		}
		if err := h.send(monitorapi.Message{Stop: &monitorapi.Stop{Reason: reason, Keep: keep}}); err != nil {
			m.log.Debug("ask hutchd to stop", "err", err)
		}
	})
}

// ends makes h the last hutchd, as it has said that it ends by itself. One that does not get there is killed. What it
// has not removed then hutch-launch does, or with keep it is the next daemon's.
func (m *monitor) ends(h *hutchd, keep bool) {
	m.stopOnce.Do(func() {
		m.keep = keep
		close(m.stopping)
		time.AfterFunc(stopTimeout, func() { _ = sys.KillPidfd(h.pidfd) })
	})
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

func (m *monitor) isStopping() bool {
	select {
	case <-m.stopping:
		return true
	default:
		return false
	}
}

// sweep removes the cgroups of daemons that were killed, of which the last processes may still be dying: these are
// looked at again when they have ended, and at the end. Nobody else comes until the next daemon starts.
func (m *monitor) sweep(undo *cleanup.Stack) {
	now := func() (left []string) {
		swept, left, err := cgroups.Sweep(0)
		if err != nil {
			m.log.Warn("sweep cgroups of dead daemons", "err", err)
		}
		if len(swept) > 0 {
			m.log.Info("swept cgroups of dead daemons", "groups", swept)
		}
		return left
	}
	left := now()
	if len(left) == 0 {
		return
	}
	undo.Add(func() error { now(); return nil })
	for _, dir := range left {
		go func() {
			if cgroups.AwaitEmpty(dir, dyingWait) {
				now()
			}
		}()
	}
}

// dyingWait is how long the last processes of dead daemons are looked at; some may be kept for a monitor that never
// comes.
const dyingWait = 10 * time.Second

// sweepWait is how long hutch gc waits for the last processes of dead daemons, which may be dying.
const sweepWait = 2 * time.Second

// serveHutchd is the monitor's closed switch: all that hutchd may ask for, until
// it ends. hutchd holds less rights than the monitor and may have been taken over
// by a sandbox, so nothing here takes a path, an id or an fd from it.
func (m *monitor) serveHutchd(ctx context.Context, h *hutchd) {
	if h == nil {
		return
	}
	for {
		var msg monitorapi.Message
		files, err := h.conn.Recv(&msg)
		packet.CloseAll(files)
		if err != nil {
			return
		}
		if a, ok := m.answer(ctx, h, &msg); ok {
			a.Question = msg.Question
			if err := h.send(a); err != nil {
				return
			}
		} else if msg.Ending != nil {
			m.ends(h, msg.Ending.Keep)
		} else {
			m.log.Warn("hutchd asked for something that the monitor does not do")
		}
	}
}

// answer does what hutchd asks for; false where msg is no question.
func (m *monitor) answer(ctx context.Context, h *hutchd, msg *monitorapi.Message) (a monitorapi.Message, ok bool) {
	switch {
	case msg.Sweep != nil:
		// Removes only empty cgroups whose names tell that their monitor is dead.
		removed, _, err := cgroups.Sweep(sweepWait)
		a.Swept = &monitorapi.Swept{Removed: removed, Error: textOf(err)}
	case msg.Probe != nil:
		a.Probed = &monitorapi.Probed{Checks: m.probe(ctx, h)}
	case msg.Reload != nil:
		a.Reloaded = m.reload()
		a.Reloaded.Asked = true
	case msg.Project != nil:
		a.Projected = &monitorapi.Projected{Sandbox: msg.Project.Sandbox, Error: textOf(m.limitProject(msg.Project))}
	default:
		return a, false
	}
	return a, true
}

// textOf is what an error says, "" for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
