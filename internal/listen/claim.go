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
// says. The claim is a locked file, which ends with its process.

// Claim claims the port of a listener in dir, the user's runtime folder. release gives it back.
func Claim(dir string, port uint16) (release func() error, err error) {
	path := claimPath(dir, port)
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("claim port %d: %w", port, err)
		}
		// root's daemon, which looks, is another user; nothing is in the file. Two may share a port, on two addresses.
		if err := errors.Join(f.Chmod(0o644), unix.Flock(int(f.Fd()), unix.LOCK_SH)); err != nil {
			return nil, errors.Join(fmt.Errorf("claim port %d: %w", port, err), f.Close())
		}
		if isAt(f, path) {
			return func() error { return giveBack(f, path) }, nil
		}
		_ = f.Close() // somebody has given it back just then
	}
}

// giveBack removes the file when nobody else claims the port.
func giveBack(f *os.File, path string) error {
	var err error
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
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
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

func claimPath(dir string, port uint16) string {
	return filepath.Join(dir, "listens-"+strconv.Itoa(int(port)))
}
