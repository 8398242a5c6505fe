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
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/config"
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

	file     config.Config // the configuration file
	tree     *cgroups.Tree
	ids      bootstrap.IDMap
	launcher *bootstrap.Launcher
	hutchd   *os.File     // pidfd
	conn     *packet.Conn // to hutchd
	listener *net.UnixListener

	stopping  chan struct{} // closed when hutchd was asked to stop
	stopOnce  sync.Once
	announced sync.Once
}

// Run starts a daemon and returns when it has ended and nothing of it is left.
// The end of ctx ends it.
func Run(ctx context.Context, opts Options) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := &monitor{opts: opts, log: opts.Logger, stopping: make(chan struct{})}
	defer func() { m.announce(err) }()
	var undo cleanup.Stack
	defer undo.Run(&err)

	if err := m.prepare(&undo); err != nil {
		return explain(ctx, err)
	}
	if err := m.start(ctx, &undo); err != nil {
		return explain(ctx, err)
	}
	return m.serve(ctx)
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
	if err := m.opts.Paths.MakeDirs(); err != nil {
		return err
	}
	if m.file, err = config.Load(m.opts.Paths.Config); err != nil {
		return err
	}
	if m.opts.Private == nil {
		if err := m.listen(undo); err != nil {
			return err
		}
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
	if swept, err := cgroups.Sweep(); err != nil {
		m.log.Warn("sweep cgroups of dead daemons", "err", err)
	} else if len(swept) > 0 {
		m.log.Info("swept cgroups of dead daemons", "groups", swept)
	}
	uid, gid := int(m.ids.UIDs[0].Outside), int(m.ids.GIDs[0].Outside)
	m.tree, err = cgroups.Delegate(os.Geteuid(), uid, gid)
	if err != nil {
		return err
	}
	undo.Add(m.tree.Remove)
	return m.tree.Enter(os.Getpid()) // hutch-launch and hutchd inherit it
}

// start brings hutch-launch and hutchd up and waits until hutchd serves.
func (m *monitor) start(ctx context.Context, undo *cleanup.Stack) error {
	ours, theirs, err := packet.Pair()
	if err != nil {
		return err
	}
	if m.conn, err = packet.New(ours); err != nil {
		theirs.Close()
		return err
	}
	undo.Add(killOrphans) // runs after the two below
	undo.Add(m.endHutchd)
	undo.Add(m.conn.Close)
	err = m.launch(ctx, theirs)
	theirs.Close()
	if err != nil {
		return err
	}
	// Ends hutch-launch and hutchd with all sandboxes; after a regular end it only
	// releases fds.
	undo.Add(m.launcher.Close)
	if m.hutchd, err = sys.OpenPidfd(m.launcher.DaemonPID); err != nil {
		return err
	}

	if err := m.conn.Send(monitorapi.Message{Config: m.config()}); err != nil {
		return err
	}
	var first monitorapi.Message
	stop := context.AfterFunc(ctx, func() { _ = m.conn.Close() })
	files, err := m.conn.Recv(&first)
	packet.CloseAll(files)
	stop()
	switch {
	case err != nil:
		return api.Errorf(api.Unavailable, "hutchd ended before it could serve: %w", err).
			WithHint("its last words are in %s", m.opts.Paths.Log)
	case first.Failed != nil:
		return &api.Error{Code: first.Failed.Code, Msg: first.Failed.Msg, Hint: first.Failed.Hint}
	case first.Ready == nil:
		return errors.New("hutchd sent something else than ready")
	}
	return nil
}

// endHutchd waits until hutchd is gone, which hutch-launch normally did: a hutchd
// that outlived it removes its sandboxes first.
func (m *monitor) endHutchd() error {
	if m.hutchd == nil {
		return nil
	}
	late := time.AfterFunc(stopTimeout, func() { _ = sys.KillPidfd(m.hutchd) })
	defer late.Stop()
	return errors.Join(sys.AwaitExit(m.hutchd), m.hutchd.Close())
}

// serve hands connections in until the daemon ends.
func (m *monitor) serve(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		m.serveHutchd(ctx)
	})
	if m.listener != nil {
		wg.Go(m.accept)
		defer m.listener.Close()
	} else {
		lease, err := duplicate(m.opts.Private)
		if err != nil {
			return err
		}
		wg.Go(func() { m.watchLease(lease, ended) })
		if err := m.handOver(m.opts.Private); err != nil {
			return err
		}
	}
	m.announce(nil)

	select {
	case <-ended:
	case <-ctx.Done():
		m.stop("the daemon got a signal")
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			m.log.Error("hutchd did not stop in time; its sandboxes are killed")
			_ = m.conn.Close()
		}
	}
	state, err := m.launcher.Wait()
	if err != nil {
		return fmt.Errorf("wait for hutch-launch: %w", err)
	}
	if code := state.ExitCode(); code != 0 {
		return api.Errorf(api.Internal, "the daemon ended with status %d", code).WithHint("its last words are in %s", m.opts.Paths.Log)
	}
	return nil
}

// stop asks hutchd to remove everything and exit.
func (m *monitor) stop(reason string) {
	m.stopOnce.Do(func() {
		close(m.stopping)
		if err := m.conn.Send(monitorapi.Message{Stop: &monitorapi.Stop{Reason: reason}}); err != nil {
			m.log.Debug("ask hutchd to stop", "err", err)
		}
	})
}

// serveHutchd is the monitor's closed switch: all that hutchd may ask for, until
// it ends. hutchd holds less rights than the monitor and may have been taken over
// by a sandbox, so nothing here takes a path, an id or an fd from it.
func (m *monitor) serveHutchd(ctx context.Context) {
	for {
		var msg monitorapi.Message
		files, err := m.conn.Recv(&msg)
		packet.CloseAll(files)
		if err != nil {
			return
		}
		switch {
		case msg.Sweep != nil:
			// Removes only empty cgroups whose names tell that their monitor is dead.
			removed, err := cgroups.Sweep()
			swept := &monitorapi.Swept{Removed: removed}
			if err != nil {
				swept.Error = err.Error()
			}
			if err := m.conn.Send(monitorapi.Message{Swept: swept}); err != nil {
				return
			}
		case msg.Probe != nil:
			if err := m.conn.Send(monitorapi.Message{Probed: &monitorapi.Probed{Checks: m.probe(ctx)}}); err != nil {
				return
			}
		default:
			m.log.Warn("hutchd asked for something that the monitor does not do")
		}
	}
}
