package changes

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// remove removes what is at p, a folder with all that is in it. Every step starts at the top of the folder and stays
// beneath it: whoever moves folders about meanwhile, the user's own programs or, in the overlay, a hostile PID 1, leads
// it nowhere else, which a walk that comes back by ".." could not promise.
func (a *applier) remove(c *Change, p string) error {
	parent, base, err := a.parent(p)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := a.unchanged(c, parent, base); err != nil {
		return err
	}
	err = unix.Unlinkat(parent, base, 0)
	if !errors.Is(err, unix.EISDIR) {
		return ignoreGone(err)
	}
	names, err := a.names(parent, base)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := a.remove(c, path.Join(p, name)); err != nil {
			return fmt.Errorf("remove %q: %w", name, err)
		}
	}
	return ignoreGone(unix.Unlinkat(parent, base, unix.AT_REMOVEDIR))
}

func (a *applier) names(parent int, base string) ([]string, error) {
	fd, err := sys.OpenBeneath(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	return f.Readdirnames(-1)
}

// unchanged looks once more, right before a name is touched, whether somebody else has changed it.
func (a *applier) unchanged(c *Change, parent int, base string) error {
	if a.force || c.since == (unix.StatxTimestamp{}) {
		return nil
	}
	var st unix.Statx_t
	err := unix.Statx(parent, base, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if later(st.Ctime, c.since) && kind(&st) != unix.S_IFDIR && !a.applied.has(&st) {
		return errMeanwhile
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Applied are the files that Apply has put into a folder: that they are younger than the sandbox's is no conflict. The
// zero value is ready to use. It is not safe for concurrent use.
type Applied struct{ files map[stamp]bool }

// stamp is one state of a file: nobody chooses a change time.
type stamp struct {
	ino     uint64
	changed unix.StatxTimestamp
}

// maxStamps bounds what is remembered; what is forgotten is a conflict, which force overrides.
const maxStamps = 100_000

func (a *Applied) has(st *unix.Statx_t) bool {
	return a != nil && a.files[stamp{st.Ino, st.Ctime}]
}

// note remembers what is at a name now.
func (a *Applied) note(parent int, base string) {
	if a == nil || len(a.files) >= maxStamps {
		return
	}
	var st unix.Statx_t
	if unix.Statx(parent, base, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st) != nil {
		return // a conflict, then
	}
	if a.files == nil {
		a.files = map[stamp]bool{}
	}
	a.files[stamp{st.Ino, st.Ctime}] = true
}
