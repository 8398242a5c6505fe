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
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, fmt.Errorf("claim port %d: %w", port, err)
	}
	// root's daemon, which looks, is another user; nothing is in the file.
	if err := f.Chmod(0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("claim port %d: %w", port, err), f.Close())
	}
	// Two may share a port, on two addresses.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("claim port %d: %w", port, err), f.Close())
	}
	return f.Close, nil
}

// Claimed reports whether a port is claimed in dir. One of which that cannot be known is.
func Claimed(dir string, port uint16) bool {
	f, err := os.OpenFile(claimPath(dir, port), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

func claimPath(dir string, port uint16) string {
	return filepath.Join(dir, "listens-"+strconv.Itoa(int(port)))
}
