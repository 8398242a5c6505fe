package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Dial connects to the daemon that listens on socket. It starts none: a socket
// without a daemon is an error with the code unavailable.
//
// The daemon must run as the caller or as root: a socket in a shared folder could
// be anybody's, and requests carry fds of the caller's files.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	c := New(conn)
	if err := c.authenticate(ctx, nil); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	if len(socket) > paths.MaxSocket {
		return nil, api.Errorf(api.InvalidArgument, "socket path %q has %d bytes, at most %d are possible", socket,
			len(socket), paths.MaxSocket).
			WithOp("connect").WithHint("Use a shorter path.")
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, dialError(ctx, socket, err)
	}
	conn, ok := nc.(*net.UnixConn)
	if !ok {
		_ = nc.Close()
		return nil, fmt.Errorf("connect to %s: a %T is no Unix socket", socket, nc)
	}
	peer, err := peerOf(conn)
	if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		err = api.Errorf(api.PermissionDenied, "socket %s is served by uid %d, not by uid %d", socket, peer.Uid,
			os.Geteuid()).
			WithOp("connect").WithHint("Set HUTCH_SOCKET to your own daemon's socket.")
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialError(ctx context.Context, socket string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("connect to %s: %w", socket, context.Cause(ctx))
	case absent(err):
		return api.Errorf(api.Unavailable, "no daemon answers on %s: %w", socket, errnoOf(err)).
			WithOp("connect").WithHint("Start one with `hutch serve`, or run any hutch command that needs it.")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return api.Errorf(api.PermissionDenied, "socket %s: %w", socket, errnoOf(err)).
			WithOp("connect").WithHint("A daemon serves the user who started it; set HUTCH_SOCKET to your own.")
	}
	return api.Errorf(api.Unavailable, "socket %s: %w", socket, errnoOf(err)).
		WithOp("connect").WithHint("Set HUTCH_SOCKET to the daemon's socket.")
}

// absent reports whether an error of dial means that no daemon is there.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// errnoOf leaves out what net says around the errno: it names the path again.
func errnoOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// peerOf is who listens: the credentials of a connected peer are those it had
// when it called listen(2) (unix(7), SO_PEERCRED).
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var gerr error
	if err := rc.Control(func(fd uintptr) {
		cred, gerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if gerr != nil {
		return nil, fmt.Errorf("peer credentials: %w", gerr)
	}
	return cred, nil
}
