package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/owners"
	"github.com/hutch-sh/hutch/internal/sys"
)

// attrs are what an entry says of a node besides its content.
type attrs struct {
	uid, gid int
	mode     uint32 // permissions, set-id bits and sticky
	mtime    time.Time
	atime    time.Time
	xattrs   map[string]string
}

const paxXattr = "SCHILY.xattr."

func attrsOf(h *tar.Header) attrs {
	a := attrs{uid: h.Uid, gid: h.Gid, mode: uint32(h.Mode) & 0o7777, mtime: h.ModTime, atime: h.AccessTime}
	if a.atime.IsZero() {
		a.atime = a.mtime
	}
	for k, v := range h.PAXRecords {
		if name, ok := strings.CutPrefix(k, paxXattr); ok {
			if a.xattrs == nil {
				a.xattrs = make(map[string]string)
			}
			a.xattrs[name] = v
		}
	}
	return a
}

// timespec keeps a time as the kernel wants it; file systems clamp what they
// cannot store.
func timespec(t time.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

// setAttrs sets everything on an open file or folder. The order matters:
// chown clears set-id bits and file capabilities, and every change but
// utimensat itself moves times.
//
// mode is what it has, or unknownMode: a system call less for most files.
func (u *unpacker) setAttrs(fd int, a attrs, mode uint32) error {
	switch {
	case a.uid == 0 && a.gid == 0 && u.owns:
		// As it was made: one system call less for most files.
	case u.single:
		if err := u.keepOwner(fd, a); err != nil {
			return err
		}
	default:
		if err := checkChown(a, func() error { return unix.Fchown(fd, a.uid, a.gid) }); err != nil {
			return err
		}
	}
	if mode != a.mode || a.mode&^0o777 != 0 {
		if err := unix.Fchmod(fd, a.mode); err != nil {
			return fmt.Errorf("set its mode %#o: %w", a.mode, err)
		}
	}
	for _, name := range sortedKeys(a.xattrs) {
		if err := u.setXattr(fd, name, a.xattrs[name]); err != nil {
			return err
		}
	}
	if err := sys.Futimens(fd, timespec(a.atime), timespec(a.mtime)); err != nil {
		return fmt.Errorf("set its time %v: %w", a.mtime, err)
	}
	return nil
}

// unknownMode is none that a node can have.
const unknownMode = ^uint32(0)

// setAttrsAt sets owner and time of a symlink or fifo that was just made; they
// take no user.* attributes.
func (u *unpacker) setAttrsAt(at place, a attrs) error {
	u.stats.Xattrs += len(a.xattrs)
	if !u.single && (a.uid != 0 || a.gid != 0 || !u.owns) {
		err := checkChown(a, func() error {
			return unix.Fchownat(at.parent, at.base, a.uid, a.gid, unix.AT_SYMLINK_NOFOLLOW)
		})
		if err != nil {
			return err
		}
	}
	times := []unix.Timespec{timespec(a.atime), timespec(a.mtime)}
	if err := unix.UtimesNanoAt(at.parent, at.base, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set its time %v: %w", a.mtime, err)
	}
	return nil
}

// checkChown explains the errors of a chown.
func checkChown(a attrs, chown func() error) error {
	// -1 means "leave as it is" to chown(2).
	if a.uid < 0 || a.gid < 0 || int64(a.uid) >= math.MaxUint32 || int64(a.gid) >= math.MaxUint32 {
		return fmt.Errorf("%w: owner %d:%d is no id", ErrUnsafe, a.uid, a.gid)
	}
	err := chown()
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %d:%d", ErrUnmapped, a.uid, a.gid)
	}
	if err != nil {
		return fmt.Errorf("set its owner %d:%d: %w", a.uid, a.gid, err)
	}
	return nil
}

// keepOwner records an owner other than 0:0.
func (u *unpacker) keepOwner(fd int, a attrs) error {
	if a.uid == 0 && a.gid == 0 {
		return nil // of an ordinary user without a user namespace
	}
	err := unix.Fsetxattr(fd, OwnerXattr, owners.Format(uint32(a.uid), uint32(a.gid)), 0)
	if errors.Is(err, unix.ENOTSUP) {
		u.stats.Xattrs++
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep its owner %d:%d: %w", a.uid, a.gid, err)
	}
	return u.noteExtended(fd)
}

// noteExtended remembers that a node has extended attributes.
func (u *unpacker) noteExtended(fd int) error {
	if u.extended == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	u.extended[st.Ino] = true
	return nil
}

// setXattr sets an attribute that a layer may bring: user.* and
// security.capability. Those of overlayfs would let a layer redirect names or
// hide files behind the sandbox's back; trusted.*, system.* (ACLs name host
// ids) and the rest of security.* cannot or must not be set here.
func (u *unpacker) setXattr(fd int, name, value string) error {
	switch {
	case strings.HasPrefix(name, "user.overlay."), strings.HasPrefix(name, "trusted.overlay."):
		u.stats.OverlayXattrs++
		return nil
	case strings.HasPrefix(name, "user.hutch."):
		u.stats.Xattrs++
		return nil
	case !strings.HasPrefix(name, "user.") && name != capabilityXattr, name == capabilityXattr && value == "":
		// An empty capability the kernel sets (fs/xattr.c, vfs_setxattr) and does not read (security/commoncap.c).
		u.stats.Xattrs++
		return nil
	}
	switch err := unix.Fsetxattr(fd, name, []byte(value), 0); {
	case err == nil:
		return u.noteExtended(fd)
	case errors.Is(err, unix.EIO), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("set attribute %q: %w", name, err)
	}
	// The file system or this user namespace cannot keep it (ENOTSUP, EPERM),
	// or it is malformed or too big (EINVAL, ERANGE, E2BIG, ENOSPC).
	u.stats.Xattrs++
	return nil
}

// dir is a folder whose attributes are set at the end.
type dir struct {
	name     string
	ino      uint64
	parent   uint64 // the inode number of the folder it was made in
	explicit bool   // has an entry of its own
	filled   bool   // has an entry of its own, or something in it that is no whiteout
	attrs    attrs
	opaque   bool
	whited   bool // has whiteouts in it
	gone     bool // there is a whiteout of it, too
}

// noteDir records what an entry says of a folder. The latest entry wins.
func (u *unpacker) noteDir(fd int, name string, h *tar.Header) error {
	d, err := u.dirOf(fd, name, false)
	if err != nil {
		return err
	}
	d.explicit, d.attrs = true, attrsOf(h)
	u.fill(d.ino)
	return nil
}

// fill notes that a folder has something in it that is no whiteout, or an entry of its own. Nothing takes that back:
// what is removed from a folder makes room for something else there.
func (u *unpacker) fill(folder uint64) {
	for d := u.dirs[folder]; d != nil && !d.filled; d = u.dirs[d.parent] {
		d.filled = true
	}
}

// dirOf gives the record of an open folder. A fresh one, just made, replaces
// whatever had its inode number before and was removed again.
func (u *unpacker) dirOf(fd int, name string, fresh bool) (*dir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat folder %q: %w", name, err)
	}
	d := u.dirs[st.Ino]
	if d == nil || fresh {
		now := time.Unix(st.Mtim.Unix())
		d = &dir{name: name, ino: st.Ino, attrs: attrs{mode: 0o755, mtime: now, atime: now}}
		u.dirs[st.Ino] = d
		if fresh {
			u.names.begin(st.Ino)
		}
	}
	return d, nil
}

// noteRoot notes the layer's folder, and whether what is made in it belongs to 0:0: not
// where folders give their group away.
func (u *unpacker) noteRoot() error {
	if _, err := u.dirOf(u.root, "", true); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(u.root, &st); err != nil {
		return fmt.Errorf("stat the layer's folder: %w", err)
	}
	u.names.forget(st.Ino) // that it is empty is the caller's word
	u.owns = os.Geteuid() == 0 && os.Getegid() == 0 && st.Gid == 0 && st.Mode&unix.S_ISGID == 0
	return nil
}

// finishDirs sets the attributes of all folders, those below before those
// above.
func (u *unpacker) finishDirs() error {
	u.parents.flush()
	all := make([]*dir, 0, len(u.dirs))
	for _, d := range u.dirs {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *dir) int { return strings.Compare(b.name, a.name) })
	for _, finish := range []func(*dir) error{u.finishGone, u.finishDir} {
		for _, d := range all {
			err := u.meter()
			if err == nil {
				err = finish(d)
			}
			if err != nil {
				return &EntryError{Entry: d.name, Err: err}
			}
		}
	}
	slices.Sort(u.stats.Implied)
	slices.Sort(u.stats.Hollow)
	return nil
}

// still opens a folder for finishing; -1 when a later entry has removed or replaced it.
func (u *unpacker) still(d *dir) (fd int, st unix.Stat_t, err error) {
	fd, err = u.reopen(d.name)
	if err != nil {
		return -1, st, nil
	}
	if err = unix.Fstat(fd, &st); err != nil || st.Ino != d.ino {
		_ = unix.Close(fd)
		fd = -1
	}
	return fd, st, err
}

func (u *unpacker) finishDir(d *dir) error {
	fd, st, err := u.still(d)
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if d.whited {
		if err := u.finishWhited(d, fd); err != nil {
			return err
		}
	}
	if !d.explicit {
		u.stats.Implied = append(u.stats.Implied, d.name)
	}
	if !d.filled && !d.opaque && d.name != "" { // one that is opaque is there, and empty
		u.stats.Hollow = append(u.stats.Hollow, d.name)
	}
	return u.setAttrs(fd, d.attrs, st.Mode&0o7777)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
