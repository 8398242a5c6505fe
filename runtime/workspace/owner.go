package workspace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/passwd"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// checkOwner refuses a folder that is to be written to and cannot be, and a mount of root's whose owner appears as
// somebody else than the user that the commands run as, who could write nothing there. Only who has made it can map its
// ids; the error says to whom.
func (a *Attaching) checkOwner(m api.Mount, src *os.File, mapped bool) error {
	if m.Volume != "" {
		return nil // everybody can write there
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(src.Fd()), &fs); err != nil {
		return fmt.Errorf("statfs %s: %w", m.From(), err)
	}
	if m.Mode == api.ModeRW && fs.Flags&unix.ST_RDONLY != 0 {
		return api.Errorf(api.FailedPrecondition, "%s is on a read-only file system: nothing can be written there",
			m.From()).
			WithHint("use mode ro, or overlay to write beside it")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", m.From(), err)
	}
	want := a.owner()
	if !mapped {
		switch {
		case a.may(&st, want, 1) && (m.Mode == api.ModeRO || a.may(&st, want, 2)):
			if m.Mode != api.ModeRO && a.others(&st, want) {
				a.c.Tell(fmt.Sprintf("%s belongs to %s inside, and commands run as uid %d: they can make files there, "+
					"and change none that was there. With --user 0 they can", m.Target, idName(st.Uid), want.UID))
			}
		case !a.may(&st, want, 1):
			// or so its mode says: there are access control lists, and other commands may be root's
			a.c.Tell(fmt.Sprintf("commands run as uid %d, and cannot enter %s: it belongs to %s inside, with mode "+
				"%04o. With --user 0 they can", want.UID, m.Target, idName(st.Uid), st.Mode&0o7777))
		default:
			a.c.Tell(fmt.Sprintf("%s belongs to %s inside, and commands run as uid %d: they can write nothing there. "+
				"With --user 0 they can", m.Target, idName(st.Uid), want.UID))
		}
		return nil
	}
	if st.Uid == want.UID && st.Gid == want.GID {
		return nil
	}
	e := api.Errorf(api.FailedPrecondition, "the owner of %s appears as %d:%d inside, and commands run as %d:%d",
		m.From(), st.Uid, st.Gid, want.UID, want.GID).
		WithHint("map its owner to these ids, as the hutch command does")
	e.Owner = &want
	return e
}

// others reports whether a folder, and most likely what is in it, is not who's. Where there is one id only, everybody
// has it.
func (a *Attaching) others(st *unix.Stat_t, who api.FolderOwner) bool {
	return !a.ws.host.Single && who.UID != st.Uid && who.UID != 0
}

// may reports whether the mode of a folder lets who do what the bits say: 2 is to make files in it, 1 to enter it.
func (a *Attaching) may(st *unix.Stat_t, who api.FolderOwner, bits uint32) bool {
	switch {
	case !a.others(st, who):
		return true
	case who.GID == st.Gid:
		return st.Mode&(bits<<3) != 0
	}
	return st.Mode&bits != 0
}

func idName(uid uint32) string {
	switch uid {
	case 0:
		return "root"
	case overflowID:
		return "nobody"
	}
	return fmt.Sprintf("uid %d", uid)
}

// owner is who the commands run as, by the accounts of the image and not of what a sandbox has written. Of a user that
// the image does not have the first command tells.
func (a *Attaching) owner() api.FolderOwner {
	if a.RunAs == "" {
		return api.FolderOwner{}
	}
	files := passwd.Read(a.openInImage)
	u, _, err := files.Find(a.RunAs)
	if err != nil || max(u.UID, u.GID) >= api.IDCount {
		return api.FolderOwner{}
	}
	return api.FolderOwner{UID: u.UID, GID: u.GID}
}

// openInImage opens a file in the top-most layer of the image that has it.
func (a *Attaching) openInImage(name string, flags int) (int, error) {
	for _, lower := range a.Layers {
		layer, err := os.OpenFile(lower, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return -1, err
		}
		fd, err := sys.OpenInRoot(int(layer.Fd()), name, flags, 0)
		_ = layer.Close()
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return fd, err
		}
	}
	return -1, unix.ENOENT
}
