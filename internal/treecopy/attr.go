package treecopy

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// finish gives the copy at to, which is open, what st says and the attributes of from: of what it has by its creation
// already nothing is set again, since each of that is a system call which writes the inode.
func finish(from, to int, st *unix.Stat_t) error {
	var now unix.Stat_t
	if err := unix.Fstat(to, &now); err != nil {
		return err
	}
	// it ends in a hole, or was cut off or went on meanwhile
	if st.Mode&unix.S_IFMT == unix.S_IFREG && now.Size != st.Size {
		if err := unix.Ftruncate(to, st.Size); err != nil {
			return err
		}
	}
	if err := owner(to, &now, st); err != nil {
		return err
	}
	if err := attributes(from, to); err != nil {
		return err
	}
	return modeAndTimes(to, &now, st)
}

// owner gives what is open the owner that st says. now is what it has, and is what it has then.
func owner(fd int, now, st *unix.Stat_t) error {
	if now.Uid == st.Uid && now.Gid == st.Gid {
		return nil
	}
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.Fstat(fd, now) // chown takes set-id bits away from files
}

// modeAndTimes comes last.
func modeAndTimes(fd int, now, st *unix.Stat_t) error {
	if now.Mode&0o7777 != st.Mode&0o7777 {
		if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH)
}

// finishName is finish for what cannot be opened: links, fifos and the like.
func finishName(dir *os.File, name string, st *unix.Stat_t) error {
	fd := int(dir.Fd())
	if err := unix.Fchownat(fd, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(fd, name, st.Mode&0o7777, 0); err != nil { // it is ours, and no link
			return err
		}
	}
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// wanted says which attributes belong to a file. Of those of overlayfs opaque and whiteout say what is hidden below;
// the others name files of the layers that the old upper folder was made over.
func wanted(name string) bool {
	if rest, ours := strings.CutPrefix(name, "user.overlay."); ours {
		return rest == "opaque" || rest == "whiteout" || strings.HasPrefix(rest, "overlay.")
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_") ||
		name == "security.capability"
}

func attributes(from, to int) error {
	names, err := list(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !wanted(name) {
			continue
		}
		value, err := get(from, name)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err == nil {
			err = unix.Fsetxattr(to, name, value, 0)
		}
		if err != nil {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	return nil
}

// maxAttribute is XATTR_SIZE_MAX, and XATTR_LIST_MAX: limits.h of Linux.
const maxAttribute = 65536

func list(fd int) ([]string, error) {
	n, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, maxAttribute)
	if n, err = unix.Flistxattr(fd, buf); err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }), nil
}

func get(fd int, name string) ([]byte, error) {
	n, err := unix.Fgetxattr(fd, name, nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, maxAttribute)
	if n, err = unix.Fgetxattr(fd, name, buf); err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// attributesOf are the wanted attributes of what is open.
func attributesOf(fd int) (attrs []Attr, err error) {
	names, err := list(fd)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !wanted(name) {
			continue
		}
		value, err := get(fd, name)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, Attr{name, value})
	}
	return attrs, nil
}
