package listen

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A port of the host that a program of hutch's listens on is claimed: no sandbox is let to it, whatever its policy
// says. The claim is a lock of an open file (fcntl(2), F_OFD_SETLK), which ends with its process. Who looks takes none,
// and so is in nobody's way.

// Claim claims the port of a listener in dir, the user's runtime folder; two may claim one, on two addresses. release
// gives it back.
func Claim(dir string, port uint16) (release func() error, err error) {
	path := claimPath(dir, port)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("claim port %d: %w", port, err)
		}
		// root's daemon, which looks, is another user; nothing is in the file.
		if err := errors.Join(f.Chmod(0o644), lock(f, unix.F_OFD_SETLK, unix.F_RDLCK)); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EAGAIN) {
				continue // somebody gives it back just now
			}
			return nil, fmt.Errorf("claim port %d: %w", port, err)
		}
		if isAt(f, path) {
			return func() error { return giveBack(f, path) }, nil
		}
		_ = f.Close() // somebody has given it back
	}
}

// giveBack removes the file where nobody else claims the port.
func giveBack(f *os.File, path string) error {
	var err error
	if lock(f, unix.F_OFD_SETLK, unix.F_WRLCK) == nil {
		err = os.Remove(path)
	}
	return errors.Join(err, f.Close())
}

// isAt reports whether a path still names the file.
func isAt(f *os.File, path string) bool {
	own, oerr := f.Stat()
	there, terr := os.Lstat(path)
	return oerr == nil && terr == nil && os.SameFile(own, there)
}

// Claimed reports whether a port is claimed in dir. One of which that cannot be known is.
func Claimed(dir string, port uint16) bool {
	f, err := os.OpenFile(claimPath(dir, port), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	held := unix.Flock_t{Type: unix.F_WRLCK} // which any lock keeps from being taken
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held)
	return err != nil || held.Type != unix.F_UNLCK
}

func lock(f *os.File, cmd int, kind int16) error {
	return unix.FcntlFlock(f.Fd(), cmd, &unix.Flock_t{Type: kind})
}

func claimPath(dir string, port uint16) string {
	return filepath.Join(dir, "listens-"+strconv.Itoa(int(port)))
}
