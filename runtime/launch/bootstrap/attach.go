package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Attach connects to the hutch-launch that listens on socket, a path of any length,
// because its monitor has died. It returns nil and no error when there is none. method
// is how its id maps were written.
func Attach(ctx context.Context, socket string, method Method) (_ *Launcher, err error) {
	f, err := connect(socket)
	if f == nil || err != nil {
		return nil, err
	}
	cred, err := unix.GetsockoptUcred(int(f.Fd()), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("find hutch-launch: %w", err)
	}
	conn, err := packet.New(f)
	if err != nil {
		return nil, err
	}
	pid := int(cred.Pid)
	l := &Launcher{PID: pid, conn: conn, method: method}
	if l.pidfd, err = sys.OpenPidfd(pid); err != nil {
		_ = conn.Close()
		if errors.Is(err, unix.ESRCH) { // it has ended since
			return nil, nil
		}
		return nil, fmt.Errorf("find hutch-launch: %w", err)
	}
	l.wait = sync.OnceValues(func() (int, error) { return 0, sys.AwaitExit(l.pidfd) })
	news, err := l.news(ctx)
	if errors.Is(err, errGone) {
		return nil, l.awaitGone(ctx)
	}
	if err == nil && (news.Hello == nil || news.Hello.Version != launchapi.Version) {
		err = api.Errorf(api.FailedPrecondition,
			"the sandboxes that run belong to another version of hutch: %+v, not %d", news.Hello, launchapi.Version).
			WithHint("start that version again and end them, or kill hutch-launch, pid %d, and lose them", pid)
	}
	if err != nil {
		_ = l.Leave()
		return nil, err
	}
	return l, nil
}

// awaitGone waits for a hutch-launch that ends: its last sandbox went, and it with that, before it saw this
// connection. The next one is not to meet what it is still removing.
func (l *Launcher) awaitGone(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = l.pidfd.Close() }) // ends the wait
	defer stop()
	if _, err := l.wait(); err != nil {
		return l.died(ctx, fmt.Errorf("wait for its end: %w", err))
	}
	return l.pidfd.Close()
}

// connect returns nil when nobody listens.
func connect(socket string) (*os.File, error) {
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, fmt.Errorf("find hutch-launch: %w", err)
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("find hutch-launch: %w", err)
	}
	f := os.NewFile(uintptr(fd), "hutch-launch")
	err = unix.Connect(fd,
		&unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))})
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	return nil, fmt.Errorf("connect to %s: %w", socket, err)
}

// Bind makes the socket that Attach finds, in the place of one that nobody serves.
func Bind(socket string) (*os.File, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bind %s: %w", socket, err)
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", socket, err)
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", socket, err)
	}
	f := os.NewFile(uintptr(fd), "hutch-launch")
	old := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))})
	unix.Umask(old)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("bind %s: %w", socket, err)
	}
	return f, nil
}
