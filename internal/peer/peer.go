// Package peer knows who is at the other end of a Unix socket.
package peer

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Owner returns who has connected to a socket, if that is this process' own user or root, and only from its own user
// and pid namespace: uid 0 of a sandbox has the daemon's kernel uid, so a sandbox that got hold of the socket, through
// a shared workspace, would otherwise be taken for the owner.
func Owner(conn int) (*unix.Ucred, error) {
	cred, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("peer credentials: %w", err)
	}
	if cred.Uid != uint32(os.Geteuid()) && cred.Uid != 0 {
		return nil, fmt.Errorf("uid %d is not the owner", cred.Uid)
	}
	alive, err := watch(conn)
	if err != nil {
		return nil, err
	}
	for i, ns := range peerNamespaces {
		own, err := ownNamespaces()
		if err != nil {
			return nil, err
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", cred.Pid, ns))
		if err != nil {
			return nil, fmt.Errorf("peer %d's %s namespace: %w", cred.Pid, ns, err)
		}
		if own[i] != theirs {
			return nil, fmt.Errorf("peer %d lives in %s, not in %s", cred.Pid, theirs, own[i])
		}
	}
	if !alive() {
		return nil, fmt.Errorf("peer %d has ended, its pid may be another process by now", cred.Pid)
	}
	return cred, nil
}

// peerNamespaces are those of this process' that a peer must live in.
var peerNamespaces = [...]string{"user", "pid"}

// ownNamespaces are this process', which does not leave them.
var ownNamespaces = sync.OnceValues(func() (own [len(peerNamespaces)]string, err error) {
	for i, ns := range peerNamespaces {
		if own[i], err = os.Readlink("/proc/self/ns/" + ns); err != nil {
			return own, fmt.Errorf("own %s namespace: %w", ns, err)
		}
	}
	return own, nil
})

// watch returns a function that tells, once, whether the process that
// connected still lives: only then what was read from /proc about its pid was
// about it. Kernels before 6.5 cannot say (SO_PEERPIDFD), and are believed.
func watch(conn int) (alive func() bool, err error) {
	fd, err := unix.GetsockoptInt(conn, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		return func() bool { return true }, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return nil, errors.New("the peer has ended")
	case err != nil:
		return nil, fmt.Errorf("peer's pidfd: %w", err)
	}
	return func() bool {
		defer unix.Close(fd)
		now, err := sys.Ready(fd, unix.POLLIN)
		return err == nil && now == 0
	}, nil
}
