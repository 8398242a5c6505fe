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
// that start with metaPrefix are AUFS's own and mean nothing.
const (
	whiteoutPrefix = ".wh."
	metaPrefix     = ".wh..wh."
	opaqueName     = ".wh..wh..opq"
)

// opaqueXattr marks a folder that hides the lower ones (overlayfs.rst, with
// the mount option userxattr).
const opaqueXattr = "user.overlay.opaque"

func isWhiteout(base string) bool { return strings.HasPrefix(base, whiteoutPrefix) }

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
	if strings.HasPrefix(base, metaPrefix) {
		return nil
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%w: whiteout of %q", ErrUnsafe, name)
	}
	parent, err := u.parent(dirName)
	if err != nil {
		return err
	}
	at := place{parent: parent, folder: u.parents.latest(), base: name, name: name}
	if err := u.writers.settle(&at); err != nil {
		return err
	}
	switch u.kindAt(at) {
	case whited, other:
		return nil
	case folder:
		// The lower folder of this name is gone and this is a new one.
		fd, err := unix.Openat(at.parent, at.base, dirFlags, 0)
		if err != nil {
			return err
		}
		return errors.Join(u.setOpaque(fd), unix.Close(fd))
	}
	// A character device 0:0 needs no privilege (mknod(2), since Linux 5.8).
	if err := unix.Mknodat(at.parent, at.base, unix.S_IFCHR|0o600, 0); err != nil {
		return fmt.Errorf("make a whiteout: %w", err)
	}
	u.names.add(at.folder, 0, at.base, unix.DT_UNKNOWN)
	return u.mark(dirName, func(d *dir) { d.whited = true })
}

// opaque hides everything that lower layers have in a folder.
func (u *unpacker) opaque(dirName string) error {
	if dirName == "" {
		u.stats.RootOpaque = true
	}
	if _, err := u.parent(dirName); err != nil {
		return err
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
