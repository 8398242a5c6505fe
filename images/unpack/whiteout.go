package unpack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the OCI image specification (layer.md, "Whiteouts"). Other names
// that start with metaPrefix are AUFS's own and mean nothing, but those of files
// in linkFolder: layers of old Docker daemons have hard links to them.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueName     = ".wh..wh..opq"
	linkFolder     = ".wh..wh.plnk"
)

// opaqueXattr marks a folder that hides the lower ones (overlayfs.rst, with
// the mount option userxattr).
const opaqueXattr = "user.overlay.opaque"

// originXattr is on what was copied up, empty where the origin is unknown. A folder that has it and need not be merged
// is listed without its whiteouts all the same (ovl_get_inode, fs/overlayfs/inode.c: "non-merge dir that may have
// whiteouts"). It is looked at for nothing else in a lower folder, as long as there is no index.
const originXattr = "user.overlay.origin"

func isWhiteout(base string) bool { return strings.HasPrefix(base, whiteoutPrefix) }

func isMeta(base string) bool { return strings.HasPrefix(base, metaPrefix) }

// leftover reports whether an entry lies in one of AUFS's own folders, so that it is left out. Files in linkFolder are
// made, and dropped at the end.
func (u *unpacker) leftover(name string) bool {
	if !strings.Contains(name, metaPrefix) {
		return false
	}
	dir, _ := splitName(name)
	if dir == linkFolder {
		u.links = true
		return false
	}
	for part := range strings.SplitSeq(dir, "/") {
		if isMeta(part) {
			return true
		}
	}
	return false
}

// dropLinks removes linkFolder: what was linked to stays by its other names.
func (u *unpacker) dropLinks() error {
	if !u.links {
		return nil
	}
	root, err := u.parent("")
	if err != nil {
		return err
	}
	return u.replace(place{parent: root, folder: u.parents.latest(), base: linkFolder})
}

// whiteout hides a name of lower layers. What this layer itself has under the
// name stays: whiteouts are about lower layers only, wherever they stand in
// the stream.
func (u *unpacker) whiteout(dirName, base string) error {
	if err := u.writers.wait(); err != nil {
		return err
	}
	if base == opaqueName {
		return u.opaque(dirName)
	}
	if isMeta(base) {
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%w: whiteout of %q", ErrUnsafe, name)
	}
	parent, err := u.parent(dirName)
	if err != nil {
		return unlessHidden(err)
	}
	at := place{parent: parent, folder: u.parents.latest(), base: name, name: joinName(dirName, name)}
	if err := u.writers.settle(&at); err != nil {
		return err
	}
	if _, ok := u.below[at.name]; ok {
		return nil // the layer has it
	}
	switch u.kindAt(at) {
	case whited, other:
		return nil
	case folder:
		// The lower folder of this name is gone and this is a new one, unless nothing else is in it (finishGone).
		fd, err := unix.Openat(at.parent, at.base, dirFlags, 0)
		if err != nil {
			return err
		}
		d, err := u.dirOf(fd, at.name, false)
		if err == nil {
			err = u.anew(d, fd)
		}
		return errors.Join(err, unix.Close(fd))
	}
	if err := u.makeWhiteout(at); err != nil {
		return err
	}
	return u.mark(dirName, func(d *dir) { d.whited = true })
}

// unlessHidden drops the error of a whiteout below what is no folder in this layer: no lower layer shows through that.
func unlessHidden(err error) error {
	if errors.Is(err, errNoFolder) {
		return nil
	}
	return err
}

func (u *unpacker) makeWhiteout(at place) error {
	// A character device 0:0 needs no privilege (mknod(2), since Linux 5.8).
	if err := unix.Mknodat(at.parent, at.base, unix.S_IFCHR|0o600, 0); err != nil {
		return fmt.Errorf("make a whiteout: %w", err)
	}
	u.names.add(at.folder, 0, at.base, unix.DT_UNKNOWN)
	return nil
}

// anew notes that a folder takes the place of a lower one that is gone.
func (u *unpacker) anew(d *dir, fd int) error {
	d.opaque, d.gone = true, true
	return u.setOpaque(fd)
}

// finishGone puts a whiteout in the place of a folder that the layer has a whiteout of and that it has, with nothing
// but whiteouts in it, because of those only: then all of it is gone.
func (u *unpacker) finishGone(d *dir) error {
	if !d.gone || d.filled {
		return nil
	}
	fd, _, err := u.still(d)
	if fd < 0 {
		return err
	}
	_ = unix.Close(fd)
	dirName, base := splitName(d.name)
	parent, err := u.parent(dirName)
	if err != nil {
		return err
	}
	at := place{parent: parent, folder: u.parents.latest(), base: base, name: d.name}
	if err := u.replace(at); err != nil {
		return err
	}
	u.parents.flush() // they may name it
	if at.parent, err = u.parent(dirName); err != nil {
		return err
	}
	return errors.Join(u.makeWhiteout(at), u.mark(dirName, func(d *dir) { d.whited = true }))
}

// finishWhited sees to it that a folder's whiteouts are not listed.
func (u *unpacker) finishWhited(d *dir, fd int) error {
	if d.opaque {
		u.names.forget(d.ino)
		return dropWhiteouts(fd)
	}
	if d.name == "" {
		return nil // the root is always merged
	}
	err := unix.Fsetxattr(fd, originXattr, nil, 0)
	if errors.Is(err, unix.ENOTSUP) {
		u.stats.Xattrs++
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark a folder with whiteouts: %w", err)
	}
	return u.noteExtended(fd)
}

// opaque hides everything that lower layers have in a folder.
func (u *unpacker) opaque(dirName string) error {
	if dirName == "" {
		u.stats.RootOpaque = true
	}
	if _, err := u.parent(dirName); err != nil {
		return unlessHidden(err)
	}
	fd, err := u.reopen(dirName)
	if err != nil {
		return err
	}
	if err := errors.Join(u.setOpaque(fd), unix.Close(fd)); err != nil {
		return err
	}
	return u.mark(dirName, func(d *dir) { d.opaque = true })
}

// mark changes the record of a folder that exists.
func (u *unpacker) mark(dirName string, change func(*dir)) error {
	fd, err := u.parent(dirName)
	if err != nil {
		return err
	}
	d, err := u.dirOf(fd, dirName, false)
	if err != nil {
		return err
	}
	change(d)
	return nil
}

func (u *unpacker) setOpaque(fd int) error {
	err := unix.Fsetxattr(fd, opaqueXattr, []byte("y"), 0)
	if errors.Is(err, unix.ENOTSUP) {
		return ErrAttributes
	}
	if err != nil {
		return fmt.Errorf("mark a folder opaque: %w", err)
	}
	return u.noteExtended(fd)
}

// listBatch is how many names of a folder are read at once.
const listBatch = 1024

// dropWhiteouts removes whiteouts from an opaque folder. There they hide
// nothing, and overlayfs lists the content of a folder that it need not merge
// as it is, whiteouts included.
func dropWhiteouts(fd int) error {
	list, err := unix.Openat(fd, ".", dirFlags, 0)
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(list), ".")
	defer d.Close()
	for {
		names, err := d.Readdirnames(listBatch)
		if errors.Is(err, io.EOF) || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT != unix.S_IFCHR {
				continue
			}
			if err := unix.Unlinkat(fd, name, 0); err != nil {
				return err
			}
		}
	}
}
