package cli

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/hutch-sh/hutch/runtime/api"
)

// kind says how one of the caller's standard files may reach a sandbox.
type kind int

const (
	// passed as it is: a pipe whose owner exists in the sandbox, a device that
	// everybody has (null, zero, full, random, urandom).
	direct kind = iota
	// pumped through a fresh pipe, because a sandbox can reopen what it holds
	// through /proc/self/fd, with the caller's rights: a regular file would be
	// readable and writable as a whole, and so would a device. Sockets and terminals carry more than
	// bytes (fds, ioctls such as TIOCSTI). A pipe whose owner the sandbox does
	// not know cannot be reopened there, so that `echo >/dev/stderr` would fail.
	pumped
	// terminal: pumped, or replaced by a terminal of the sandbox's own.
	terminal
)

// endpoint is a classified standard file.
type endpoint struct {
	file *os.File // the caller's; never closed here
	kind kind
	same identity
}

// identity is equal for two fds of one file, so that the order of what is
// written through both can be kept.
type identity struct{ dev, ino, rdev uint64 }

// classify says how f, the caller's standard file called name, may reach a
// sandbox whose uid 0 has the kernel uid owner.
func classify(name string, f *os.File, owner uint32) (endpoint, error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return endpoint{}, fmt.Errorf("%s: fstat: %w", name, err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s: fcntl F_GETFL: %w", name, err)
	}
	e := endpoint{file: f, kind: pumped, same: identity{st.Dev, st.Ino, st.Rdev}}
	if flags&unix.O_PATH != 0 {
		return e, refused(name, "opened without access (O_PATH)")
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		if st.Uid == owner {
			e.kind = direct
		}
	case unix.S_IFCHR:
		switch {
		case term.IsTerminal(fd):
			e.kind = terminal
		case everybodys(st.Rdev):
			e.kind = direct
		}
	case unix.S_IFREG, unix.S_IFSOCK:
	case unix.S_IFDIR:
		return e, refused(name, "a directory")
	case unix.S_IFBLK:
		return e, refused(name, "a block device")
	default:
		return e, refused(name, fmt.Sprintf("a file of the unknown type %#o", st.Mode&unix.S_IFMT))
	}
	return e, nil
}

// everybodys reports whether a character device is null, zero, full, random or
// urandom (Documentation/admin-guide/devices.txt).
func everybodys(rdev uint64) bool {
	const memory = 1
	return unix.Major(rdev) == memory && slices.Contains([]uint32{3, 5, 7, 8, 9}, unix.Minor(rdev))
}

func refused(name, what string) error {
	return api.Errorf(api.InvalidArgument, "%s is %s, which must not reach a sandbox", name, what).
		WithHint("redirect it from or to a file, a pipe or /dev/null")
}
