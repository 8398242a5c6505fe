package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A version is which file a name leads to and when that was written last, to what size. A write may name the one that
// it is made for, so that no write of another's is lost. What makes a change and puts the time back is not seen: only
// who does that inside, and wants it, misses its own change.

// errChanged says that a file is not what it was.
var errChanged = &problem{unix.ESTALE, "was changed by somebody else meanwhile"}

func version(st *unix.Stat_t) string {
	return fmt.Sprintf("%x-%x-%x", st.Ino, st.Mtim.Nano(), st.Size)
}

// is reports an error unless the file of this name has a version.
func (s *spot) is(want string) error {
	var st unix.Stat_t
	err := unix.Fstatat(s.dir, s.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && version(&st) != want {
		return errChanged
	}
	return err
}

// exchange gives a temporary file the name of one that has a version, in a single step. What had the name then has the
// temporary's, and is looked at: where it is another one after all, it gets its name back.
func (t *temp) exchange(to *spot, want string) error {
	old, err := openat(to.dir, to.name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(old)
	var was unix.Stat_t
	if err := unix.Fstat(old, &was); err != nil {
		return err
	}
	if version(&was) != want {
		return errChanged
	}
	err = unix.Renameat2(t.dir, t.name, to.dir, to.name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) { // the file system has no such thing: a change in this very moment is not seen
		err = unix.Renameat(t.dir, t.name, to.dir, to.name)
		t.moved = err == nil
		return err
	}
	if err != nil {
		return err
	}
	if t.has(old, &was) {
		return nil // and remove removes it
	}
	return t.giveBack(to)
}

// giveBack gives a file its name back that another write has made a moment before the exchange. Where yet another has
// taken the name since, it keeps that.
func (t *temp) giveBack(to *spot) error {
	for range 2 {
		if err := unix.Renameat2(t.dir, t.name, to.dir, to.name, unix.RENAME_EXCHANGE); err != nil {
			t.moved = true // what is there is somebody's
			return err
		}
		var own unix.Stat_t
		if unix.Fstat(t.fd, &own) == nil && t.has(t.fd, &own) {
			break
		}
	}
	return errChanged
}

// has reports whether the temporary name leads to an open file that nobody has written since it was looked at. The
// number of a file may be another one after its first change (overlayfs), but then for both.
func (t *temp) has(fd int, was *unix.Stat_t) bool {
	var open, named unix.Stat_t
	return unix.Fstat(fd, &open) == nil && unix.Fstatat(t.dir, t.name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		open.Dev == named.Dev && open.Ino == named.Ino && named.Mtim == was.Mtim && named.Size == was.Size
}
