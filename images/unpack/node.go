package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// create calls make, and when something of this layer has the name already,
// removes that and calls it once more: the later entry wins.
func (u *unpacker) create(at place, make func() error) error {
	err := make()
	if errors.Is(err, unix.EEXIST) {
		if err = u.replace(at); err == nil {
			err = make()
		}
	}
	if err == nil {
		u.names.add(at.folder, 0, at.base, unix.DT_UNKNOWN)
	}
	return err
}

// regular makes a file. O_EXCL makes sure that it is new, so that neither a
// symlink nor a hard link can send the content elsewhere.
func (u *unpacker) regular(at place, h *tar.Header) error {
	if err := u.admit(h.Size); err != nil {
		return err
	}
	a, sparse := attrsOf(h), isSparse(h)
	if at.fresh && !sparse && u.small(h.Size, a) {
		return u.writers.add(at, h.Name, a, int(h.Size))
	}
	var fd int
	err := u.create(at, func() (err error) {
		fd, err = unix.Openat(at.parent, at.base,
			unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	write := u.copy
	if sparse {
		write = u.copySparse
	}
	err = write(fd, h.Size)
	if err == nil {
		err = u.setAttrs(fd, a, unknownMode)
	}
	if err == nil {
		err = u.noteContent(fd, at)
	}
	return errors.Join(err, unix.Close(fd))
}

// sum takes a piece of the content that is being written.
func (u *unpacker) sum(p []byte) {
	if u.records != nil {
		u.crc = crc32.Update(u.crc, castagnoli, p)
	}
}

// noteContent notes the file that was written.
func (u *unpacker) noteContent(fd int, at place) error {
	if u.records == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat it: %w", err)
	}
	u.records.note(at.key, &st, u.crc)
	u.crc = 0
	return nil
}

// admit checks a file's size before anything is written.
func (u *unpacker) admit(size int64) error {
	if size < 0 || size > u.limits.MaxFileBytes {
		return fmt.Errorf("%w of %d bytes in a file: it has %d", ErrLimit, u.limits.MaxFileBytes, size)
	}
	if size > u.limits.MaxBytes-u.stats.Bytes {
		return fmt.Errorf("%w of %d unpacked bytes for a layer of this compressed size", ErrLimit, u.limits.MaxBytes)
	}
	u.stats.Bytes += size
	return nil
}

// copy writes the content of the current entry.
func (u *unpacker) copy(fd int, size int64) error {
	for left := size; left > 0; {
		n, err := io.ReadFull(u.tr, u.buf[:min(left, int64(len(u.buf)))])
		if err != nil {
			return readError("read its content", noEOF(err))
		}
		u.sum(u.buf[:n])
		if err := writeAll(fd, u.buf[:n]); err != nil {
			return fmt.Errorf("write its content: %w", err)
		}
		left -= int64(n)
	}
	return nil
}

// sparseBlock is the unit in which holes are kept.
const sparseBlock = 4096

var zeros [sparseBlock]byte

// copySparse writes the content of an entry that had holes, and keeps blocks
// of zeros as holes.
func (u *unpacker) copySparse(fd int, size int64) error {
	for off := int64(0); off < size; {
		n, err := io.ReadFull(u.tr, u.buf[:min(size-off, int64(len(u.buf)))])
		if err != nil {
			return readError("read its content", noEOF(err))
		}
		u.sum(u.buf[:n])
		for i := 0; i < n; i += sparseBlock {
			block := u.buf[i:min(n, i+sparseBlock)]
			if bytes.Equal(block, zeros[:len(block)]) {
				continue
			}
			if _, err := unix.Seek(fd, off+int64(i), io.SeekStart); err != nil {
				return fmt.Errorf("seek: %w", err)
			}
			if err := writeAll(fd, block); err != nil {
				return fmt.Errorf("write its content: %w", err)
			}
		}
		off += int64(n)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set its size %d: %w", size, err)
	}
	return nil
}

// noEOF turns the end of the stream in the middle of a file into an error that
// no caller takes for the end of the layer.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// directory makes a folder or takes over one that is there. Its owner, mode
// and time are set at the end: what is made in it would change its time, and
// its group if it is set-gid.
func (u *unpacker) directory(at place, h *tar.Header) error {
	var fd int
	var err error
	if u.kindAt(at) == folder {
		fd, err = unix.Openat(at.parent, at.base, dirFlags, 0)
	} else {
		fd, err = u.makeDir(at)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.noteDir(fd, at.name, h)
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// makeDir makes an empty folder and opens it. In place of a whiteout of the
// same layer it is opaque, for the two say that a lower folder was deleted and
// a new one made. But see finishGone.
func (u *unpacker) makeDir(at place) (int, error) {
	opaque := u.kindAt(at) == whited
	err := u.create(at, func() error { return unix.Mkdirat(at.parent, at.base, 0o700) })
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(at.parent, at.base, dirFlags, 0)
	if err != nil {
		return -1, err
	}
	d, err := u.dirOf(fd, at.name, true)
	if err == nil {
		d.parent = at.folder
	}
	if err == nil && opaque {
		err = u.anew(d, fd)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (u *unpacker) symlink(at place, h *tar.Header) error {
	err := u.create(at, func() error { return unix.Symlinkat(h.Linkname, at.parent, at.base) })
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG) {
			return fmt.Errorf("%w: symlink to %.80q: %w", ErrUnsafe, h.Linkname, err)
		}
		return err
	}
	return u.setAttrsAt(at, attrsOf(h))
}

func (u *unpacker) fifo(at place, h *tar.Header) error {
	err := u.create(at, func() error { return unix.Mknodat(at.parent, at.base, unix.S_IFIFO|0o600, 0) })
	if err != nil {
		return err
	}
	a := attrsOf(h)
	if err := u.setAttrsAt(at, a); err != nil {
		return err
	}
	// Without AT_SYMLINK_NOFOLLOW, which needs Linux 6.6: the node was just
	// made and is no symlink.
	return unix.Fchmodat(at.parent, at.base, a.mode, 0)
}

// hardLink makes one more name for a node of this layer. The target is looked
// up like any parent, but its last component is never followed: a hard link to
// a symlink is the symlink.
func (u *unpacker) hardLink(at place, h *tar.Header) error {
	name, err := u.cleanName(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link to %q: %w", h.Linkname, err)
	}
	if err := u.writers.wait(); err != nil { // the target may be in a batch
		return err
	}
	delete(u.below, at.name)
	if name == "" || isWhiteout(name[strings.LastIndexByte(name, '/')+1:]) {
		return fmt.Errorf("%w: hard link to %q", ErrUnsafe, h.Linkname)
	}
	dirName, base := splitName(name)
	from, err := sys.OpenInRoot(u.root, orDot(dirName), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) {
		return u.linkBelow(at, name, h)
	}
	if err != nil {
		return fmt.Errorf("%w: hard link to %q: %w", ErrUnsafe, h.Linkname, err)
	}
	defer unix.Close(from)
	if sameNode(from, base, at) {
		return nil // linked already; removing it first would lose it
	}
	k := u.kindAt(place{parent: from, base: base})
	if k == absent {
		return u.linkBelow(at, name, h)
	}
	if k != other {
		return fmt.Errorf("%w: hard link to %q, which this layer has not as a file", ErrUnsafe, h.Linkname)
	}
	return u.create(at, func() error { return unix.Linkat(from, base, at.parent, at.base, 0) })
}

func sameNode(dir int, base string, at place) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(dir, base, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(at.parent, at.base, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}
