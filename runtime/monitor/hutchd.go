package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/bootstrap"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// hutchd is one life of hutchd, seen from outside.
type hutchd struct {
	conn  *packet.Conn
	pid   int
	pidfd *os.File
}

// More crashes than maxCrashes within crashTime end the daemon: what makes hutchd crash
// again and again is most likely something that it takes over.
const (
	maxCrashes = 5
	crashTime  = time.Minute
)

// startHutchd starts a hutchd and waits until it serves. One that was started and does
// not is killed.
func (m *monitor) startHutchd(ctx context.Context) error {
	started, err := m.tryHutchd(ctx)
	if err != nil && started && m.opts.Private == nil {
		_, _ = m.launcher.Next() // it has ended: room for another
	}
	return err
}

func (m *monitor) tryHutchd(ctx context.Context) (started bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ours, theirs, err := packet.Pair()
	if err != nil {
		return started, err
	}
	defer theirs.Close()
	h := &hutchd{}
	if h.conn, err = packet.New(ours); err != nil {
		return started, err
	}
	defer func() {
		if err != nil {
			if h.pidfd != nil {
				_ = sys.KillPidfd(h.pidfd)
			}
			h.close()
		}
	}()
	mount, err := m.mountPoint()
	if err != nil {
		return started, err
	}
	pid, err := m.launcher.StartDaemon(ctx, bootstrap.Daemon{
		Start:  launchapi.Start{Args: []string{"hutchd", "daemon"}, Env: daemonEnv(mount)},
		Binary: m.binary, Channel: theirs,
	})
	theirs.Close()
	if err != nil {
		return false, err
	}
	started, h.pid = true, pid
	if h.pidfd, err = sys.OpenPidfd(pid); err != nil {
		return started, err
	}
	// This process may have to kill it, and hutch-launch, which says who it is, is trusted
	// with less.
	if parent, err := parentOf(pid); err != nil || parent != m.launcher.PID {
		_ = h.pidfd.Close() // somebody else
		h.pidfd = nil
		return false, fmt.Errorf("hutch-launch started process %d, whose parent is %d (%w)", pid, parent,
			cmp.Or(err, errors.New("it must be hutch-launch itself")))
	}
	scanner, closeScanner, err := open("hutch-scan")
	if err != nil {
		return started, err
	}
	defer closeScanner()
	if err := h.begin(ctx, m.config(), append(scanner, m.maps...)); err != nil {
		if api.ErrorCode(err) == api.Unavailable {
			return true, api.Errorf(api.Unavailable, "hutchd ended before it could serve: %w", err).
				WithHint("its last words are in %s", m.opts.Paths.Log)
		}
		return started, err
	}
	m.enter(h)
	m.retell(h)
	return true, nil
}

// begin hands hutchd its config, with the fds that belong to it, and waits until it serves.
func (h *hutchd) begin(ctx context.Context, config *monitorapi.Config, files []*os.File) error {
	if err := h.conn.Send(monitorapi.Message{Config: config}, files...); err != nil {
		return api.Errorf(api.Unavailable, "%w", err)
	}
	var first monitorapi.Message
	stop := context.AfterFunc(ctx, func() { _ = h.conn.Close() })
	files, err := h.conn.Recv(&first)
	packet.CloseAll(files)
	for err == nil && first.Project != nil { // a sandbox that it cannot take over is removed
		err = h.send(monitorapi.Message{Question: first.Question, Projected: &monitorapi.Projected{
			Sandbox: first.Project.Sandbox, Error: "hutchd does not serve yet"}})
		if first = (monitorapi.Message{}); err == nil {
			files, err = h.conn.Recv(&first)
			packet.CloseAll(files)
		}
	}
	stop()
	switch {
	case err != nil:
		return api.Errorf(api.Unavailable, "%w", err)
	case first.Failed != nil:
		return &api.Error{Code: first.Failed.Code, Msg: first.Failed.Msg, Hint: first.Failed.Hint}
	case first.Ready == nil:
		return errors.New("hutchd sent something else than ready")
	}
	return nil
}

// sendTimeout bounds what hutchd may take to read a message: its queue holds hundreds.
const sendTimeout = 10 * time.Second

// send sends to hutchd. One that does not read hangs, or was taken over, and is killed;
// another takes over from it.
func (h *hutchd) send(msg monitorapi.Message, files ...*os.File) error {
	if err := h.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return os.ErrClosed
	}
	err := h.conn.Send(msg, files...)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = sys.KillPidfd(h.pidfd)
	}
	return err
}

func (h *hutchd) close() {
	_ = h.conn.Close()
	if h.pidfd != nil {
		_ = h.pidfd.Close()
	}
}

// enter makes h the one that gets connections.
func (m *monitor) enter(h *hutchd) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hutchd = h
	m.changed.Broadcast()
}

// retire says that h has ended.
func (m *monitor) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hutchd != nil {
		m.hutchd.close()
		m.hutchd = nil
	}
}

// next waits for a hutchd other than after; nil says that none will come.
func (m *monitor) next(after *hutchd) *hutchd {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !m.over && (m.hutchd == nil || m.hutchd == after) {
		m.changed.Wait()
	}
	if m.over {
		return nil
	}
	return m.hutchd
}

// finish wakes those who wait for a hutchd: there will be none.
func (m *monitor) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	m.changed.Broadcast()
}

// watch serves hutchd, life after life, until it has ended for good. It reports whether
// sandboxes live on.
func (m *monitor) watch(ctx context.Context) (left bool) {
	defer m.finish()
	var crashes []time.Time
	for {
		h, served := m.next(nil), make(chan struct{})
		go func() {
			m.serveHutchd(ctx, h)
			close(served)
		}()
		ended, err := m.launcher.Next()
		if err != nil {
			return false // hutch-launch ends after a regular end of hutchd, or was killed
		}
		if h != nil {
			_ = h.conn.CloseRead()
			<-served // it may have said last that it ends
		}
		m.retire()
		status := syscall.WaitStatus(ended.Status)
		switch {
		case status.Exited() && status.ExitStatus() == monitorapi.ExitLeft:
			return true
		case status.Exited() && status.ExitStatus() == monitorapi.ExitFailed:
			m.log.Error("hutchd could not remove everything; the daemon ends")
			return false
		case m.isStopping():
			m.log.Warn("hutchd has crashed while it ended", "how", describe(status))
			return m.keep
		}
		now := time.Now()
		crashes = append(crashes, now)
		for now.Sub(crashes[0]) > crashTime {
			crashes = crashes[1:]
		}
		if len(crashes) > maxCrashes {
			m.log.Error("hutchd crashes again and again; the daemon ends", "crashes", len(crashes), "within", crashTime)
			return false
		}
		m.log.Warn("hutchd has crashed; another one takes over", "how", describe(status))
		// A signal meanwhile is for the one that comes.
		start := func() error { return m.startHutchd(context.WithoutCancel(ctx)) }
		for err := start(); err != nil; err = start() {
			m.log.Error("start hutchd again", "err", err)
			if crashes = append(crashes, time.Now()); len(crashes) > maxCrashes || m.isStopping() {
				return false
			}
			<-time.After(retryPause)
		}
	}
}

// retryPause lets what has kept hutchd from starting pass.
const retryPause = 500 * time.Millisecond

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + ws.Signal().String()
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}
