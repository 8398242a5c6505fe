package monitor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener is the socket that clients connect to. It is no net.UnixListener: what that accepts is made known to the
// runtime's poller, which is of no use for a connection that is handed on at once, and takes as long as the rest.
type listener struct {
	path   string
	f      *os.File // blocking: a thread waits in accept4(2)
	rc     syscall.RawConn
	closed atomic.Bool
}

// backlog is how many may wait to be accepted, of which the kernel makes at most net.core.somaxconn. Who finds it full
// is refused (EAGAIN), or waits.
const backlog = 1 << 16

// listenUnix binds path, which must not exist, with the mode that the umask leaves.
func listenUnix(path string) (*listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l := &listener{path: path, f: os.NewFile(uintptr(fd), path)}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind: %w", err), l.f.Close())
	}
	if err = unix.Listen(fd, backlog); err == nil {
		l.rc, err = l.f.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), os.Remove(path), l.f.Close())
	}
	return l, nil
}

// accept waits for a connection, which is the caller's. After Close it is net.ErrClosed.
func (l *listener) accept() (*os.File, error) {
	conn, aerr := -1, error(nil)
	err := l.rc.Control(func(fd uintptr) { // Close does not take the fd away meanwhile
		for aerr = unix.EINTR; errors.Is(aerr, unix.EINTR); {
			conn, _, aerr = unix.Accept4(int(fd), unix.SOCK_CLOEXEC)
		}
	})
	if l.closed.Load() || err != nil {
		if conn >= 0 {
			_ = unix.Close(conn) // it came too late
		}
		return nil, net.ErrClosed
	}
	if aerr != nil {
		return nil, fmt.Errorf("accept: %w", aerr)
	}
	return os.NewFile(uintptr(conn), "connection"), nil
}

// Close removes the socket and ends accept. Who connects from then on finds nobody; who has connected and was not
// accepted, neither.
func (l *listener) Close() error {
	if l.closed.Swap(true) {
		return net.ErrClosed
	}
	err := os.Remove(l.path)
	// Wakes accept4, which close(2) does not (net/unix/af_unix.c, unix_accept).
	cerr := l.rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return errors.Join(err, cerr, l.f.Close())
}
