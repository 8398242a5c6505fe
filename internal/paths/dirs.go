package paths

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	privateMode = 0o700
	// walkMode is the mode of root's runtime folder: root's daemon has a uid of
	// its own and walks through to its mount point. Nothing in the folder can be
	// listed, and the socket itself is 0600.
	walkMode = 0o711
)

// MakeDirs creates the folders that do not exist and checks the others: they
// must be real folders (no symlinks) that belong to the user and that nobody
// else may write. Read permission of others is taken away.
//
// The folders are those of Runtime, State and Socket, and Config's unless
// $HUTCH_CONFIG named the file.
func (p Paths) MakeDirs() error {
	runtimeMode := uint32(privateMode)
	if p.uid == 0 {
		runtimeMode = walkMode
	}
	if err := p.ownDir(p.Runtime, runtimeMode); err != nil {
		return err
	}
	if err := p.ownDir(p.State, privateMode); err != nil {
		return err
	}
	if dir := filepath.Dir(p.Socket); dir != p.Runtime {
		if err := p.socketDir(dir); err != nil {
			return err
		}
	}
	if !p.ownConfig {
		return nil
	}
	// hutch only reads its configuration: where it cannot even make the folder
	// (a read-only /etc) there is none to read.
	err := p.ownDir(filepath.Dir(p.Config), privateMode)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// ownDir makes sure of a folder that is hutch's alone.
func (p Paths) ownDir(path string, mode uint32) error {
	fd, err := p.openDir(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed(path, err)
	}
	if int(st.Uid) != p.uid {
		return foreign(path, st.Uid, p.uid)
	}
	switch perm := st.Mode & 0o7777; {
	case perm == mode:
		return nil
	case perm&0o022 != 0:
		// Others may have put something there already: tightening comes too late.
		return api.Errorf(api.PermissionDenied, "folder %s has mode %04o: others may write to it", path, perm).
			WithOp("make folders").WithHint("Look at what is in it, then: chmod %04o %s", mode, path)
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return failed(path, err)
	}
	return nil
}

// socketDir makes sure of the folder of a socket that $HUTCH_SOCKET names. It
// may be anybody's business otherwise, so an existing one is not changed; but
// only the user and root may be able to replace the socket.
func (p Paths) socketDir(path string) error {
	if err := os.MkdirAll(path, privateMode); err != nil {
		return failed(path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return failed(path, err)
	}
	if int(st.Uid) != p.uid && st.Uid != 0 {
		return foreign(path, st.Uid, p.uid)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return api.Errorf(api.PermissionDenied, "folder %s has mode %04o: others may replace a socket in it", path,
			st.Mode&0o7777).
			WithOp("make folders").WithHint("Set HUTCH_SOCKET to a path in a folder of your own.")
	}
	return nil
}

// openDir opens the folder without following a symlink in its last component,
// after making it and its parents if need be.
func (p Paths) openDir(path string) (int, error) {
	if err := os.MkdirAll(filepath.Dir(path), privateMode); err != nil {
		return -1, failed(path, err)
	}
	if err := unix.Mkdir(path, privateMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, failed(path, err)
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	for {
		fd, err := unix.Open(path, flags, 0)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR):
			continue
		// O_DIRECTORY is checked first, so a symlink gives ENOTDIR as a file does.
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			return -1, api.Errorf(api.PermissionDenied, "%s is a symlink or a file, not a folder: %w", path, err).
				WithOp("make folders").WithHint("Remove it; to keep things elsewhere set HUTCH_ROOT or HUTCH_SOCKET.")
		}
		return -1, failed(path, err)
	}
}

func foreign(path string, has uint32, want int) error {
	return api.Errorf(api.PermissionDenied, "folder %s belongs to uid %d, not to uid %d", path, has, want).
		WithOp("make folders").
		WithHint("Remove it, or set HUTCH_ROOT, HUTCH_SOCKET or XDG_RUNTIME_DIR to folders of your own.")
}

func failed(path string, err error) error {
	return api.Errorf(api.FailedPrecondition, "folder %s: %w", path, err).
		WithOp("make folders").
		WithHint("Make it writable, or set HUTCH_ROOT, HUTCH_SOCKET or XDG_RUNTIME_DIR to folders of your own.")
}
