package monitor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cleanup"
	"github.com/hutch-sh/hutch/internal/peer"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// listen binds the socket. The lock beside it belongs to the daemon that serves
// the socket and goes with its process, so a stale socket file is told from a
// living daemon without a connection.
func (m *monitor) listen(undo *cleanup.Stack) error {
	socket := m.opts.Paths.Socket
	lock, err := openLock(socket + ".lock")
	if err != nil {
		return err
	}
	undo.Add(lock.Close)
	if err := lockSocket(lock, socket); err != nil {
		return err
	}
	if err := removeStale(socket); err != nil {
		return err
	}
	old := unix.Umask(0o177) // the socket file is 0600 from its first moment
	l, err := listenUnix(socket)
	unix.Umask(old)
	if err != nil {
		return api.Errorf(api.Unavailable, "bind socket %s: %w", socket, err).
			WithHint("HUTCH_SOCKET chooses another path")
	}
	m.listener = l
	undo.Add(func() error { _ = l.Close(); return nil }) // serve closes it first
	return nil
}

// openLock opens the lock. Its folder may be anybody's, /tmp say: another user's
// file or symlink in its place is no lock.
func openLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, api.Errorf(api.Unavailable, "open the socket's lock: %w", err).
			WithHint("HUTCH_SOCKET chooses another path")
	}
	var st unix.Stat_t
	err = unix.Fstat(int(lock.Fd()), &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid())) {
		err = api.Errorf(api.PermissionDenied, "the socket's lock %s is not a file of this user", path).
			WithHint("HUTCH_SOCKET chooses another path")
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// removeStale removes the socket of a daemon that was killed, and nothing else: a
// mistyped HUTCH_SOCKET may name any file.
func removeStale(socket string) error {
	st, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && st.Mode().Type() != os.ModeSocket {
		return api.Errorf(api.FailedPrecondition, "%s is no socket", socket).
			WithHint("HUTCH_SOCKET chooses another path")
	}
	if err == nil {
		err = os.Remove(socket)
	}
	if err != nil {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// lockSocket takes the lock, and waits for it where its holder does not serve any
// more: a daemon that is ending closes its socket first and then removes its
// sandboxes.
func lockSocket(lock *os.File, socket string) error {
	taken := api.Errorf(api.AlreadyExists, "another daemon serves %s", socket).
		WithHint("use it, or set HUTCH_SOCKET to another path")
	fd := int(lock.Fd())
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		return nil
	}
	if c, err := net.Dial("unix", socket); err == nil {
		_ = c.Close()
		return taken
	}
	got := make(chan error, 1)
	go func() { // ends with the holder of the lock, or with this process
		for {
			if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		return err
	case <-time.After(stopTimeout):
		return taken
	}
}

// accept hands authenticated connections to hutchd until the listener is closed.
func (m *monitor) accept() {
	for {
		f, err := m.listener.accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			m.log.Warn("accept", "err", err)
			if !m.pause() {
				return
			}
			continue
		}
		if err := m.handOver(f); err != nil {
			m.log.Warn("refused a connection", "err", err)
		}
	}
}

// pause waits a moment when the process has run out of fds; it reports false when
// the daemon is ending.
func (m *monitor) pause() bool {
	select {
	case <-m.stopping:
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

// handOver authenticates the peer of f and passes the connection to hutchd.
func (m *monitor) handOver(f *os.File) error {
	defer f.Close()
	peer, err := authenticate(f)
	if err != nil {
		return err
	}
	peer.Private = m.opts.Private != nil
	for h := m.next(nil); h != nil; h = m.next(h) {
		err = h.send(monitorapi.Message{Conn: peer}, f)
		if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, os.ErrClosed) &&
			!errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return errors.Join(errors.New("the daemon has ended"), err)
}

// duplicate makes a second fd of a socket, known to the runtime's poller.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// authenticate lets in the daemon's own user and root.
func authenticate(f *os.File) (*monitorapi.Conn, error) {
	cred, err := peer.Owner(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return &monitorapi.Conn{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// watchLease stops the daemon when the owner of a private one is gone. hutchd
// sees the same, but may hang.
// It owns f and returns when the daemon has ended.
func (m *monitor) watchLease(f *os.File, ended <-chan struct{}) {
	go func() {
		<-ended
		_ = f.Close() // ends the wait below
	}()
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	err = rc.Read(func(fd uintptr) bool {
		now, err := sys.Ready(int(fd), 0)
		return err == nil && now&unix.POLLHUP != 0
	})
	if err == nil {
		m.stop("its owner is gone", false)
	}
}
