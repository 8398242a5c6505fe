package program

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHidden says that the hierarchy above a cgroup cannot be seen.
var ErrHidden = errors.New("the root of the cgroup2 hierarchy cannot be seen from here, as in a container with a cgroup namespace")

// rootInode is that of the hierarchy's root (kernfs gives the first node 1).
const rootInode = 1

// maxLevel is deeper than anybody builds cgroups.
const maxLevel = 256

// Level is how deep a cgroup is, as the kernel counts for its helpers: 0 is the hierarchy's
// root, also where a namespace or a mount shows less of it.
func Level(cgroup *os.File) (uint32, error) {
	at, err := unix.FcntlInt(cgroup.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return 0, fmt.Errorf("duplicate the cgroup's folder: %w", err)
	}
	defer func() { _ = unix.Close(at) }()
	for level := range uint32(maxLevel) {
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return 0, fmt.Errorf("stat a cgroup above: %w", err)
		}
		if st.Ino == rootInode {
			return level, nil
		}
		// Never into another mount: there ".." leads wherever its owner put it.
		up, err := unix.Openat2(at, "..", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_XDEV})
		switch {
		case errors.Is(err, unix.EXDEV):
			return 0, ErrHidden
		case err != nil:
			return 0, fmt.Errorf("open the cgroup above: %w", err)
		}
		_ = unix.Close(at)
		at = up
	}
	return 0, ErrHidden
}
