package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// heldFile is a file that is only held for hutchd. It is no os.File: that would be in the
// runtime's poller, which then wakes hutch-launch for each connection that comes to a
// listener of hutchd's.
type heldFile int

// hold takes over f.
func hold(f *os.File) (heldFile, error) {
	defer f.Close()
	rc, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int
	var derr error
	if err := rc.Control(func(from uintptr) { fd, derr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return -1, err
	}
	if derr != nil {
		return -1, fmt.Errorf("hold a file of hutchd's: %w", derr)
	}
	return heldFile(fd), nil
}

// file is a duplicate, the caller's.
func (p heldFile) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(p), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("hand over a file of hutchd's: %w", err)
	}
	return os.NewFile(uintptr(fd), "held"), nil
}

func (p heldFile) close() { _ = unix.Close(int(p)) }
