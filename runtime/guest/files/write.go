package files

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// write writes a file. Normally it makes a new file beside it and renames that, so
// that nobody ever sees half of it; where that would change more than the content,
// or cannot be done, it writes into the file.
func (c *call) write() (*filesapi.Reply, error) {
	src, err := c.source()
	if err != nil {
		return nil, err
	}
	if c.Parents {
		if dir, _ := split(c.Path); dir != "/" {
			_, err := makeFolders(dir, defaultFolder)
			if errors.Is(err, unix.EEXIST) { // a file is there
				err = at(dir, unix.ENOTDIR)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if c.Append || c.At || c.InPlace {
		return c.writeInto(src)
	}
	// An exclusive write does not follow a link: O_EXCL does not either.
	to, err := resolve(c.Path, !c.Exclusive)
	if err != nil {
		return nil, err
	}
	defer to.close()
	obstacle, err := c.mayReplace(to)
	if err == nil && c.Version != "" {
		err = to.is(c.Version)
	}
	if err != nil {
		return nil, err
	}
	tmp, err := newTemp(to.dir)
	if err == nil && obstacle == "" && to.st != nil && !tmp.owned(to.st) {
		obstacle = "belongs to another user"
	}
	switch {
	case err == nil && obstacle == "":
		defer tmp.remove()
		return c.writeAtomic(src, to, tmp)
	case err == nil:
		tmp.remove()
	case !notPermitted(err):
		return nil, err
	case to.st == nil:
		return nil, err // nor can it be made in any other way
	default:
		obstacle = "is in a folder that takes no new files"
	}
	if c.Atomic {
		return nil, &problem{unix.EOPNOTSUPP, obstacle + ": it cannot be replaced atomically"}
	}
	return c.writeInto(src)
}

// source is what is to be written.
func (c *call) source() (io.Reader, error) {
	if c.fd < 0 {
		return bytes.NewReader(c.data), nil
	}
	return c.pipe()
}

func notPermitted(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}

// mayReplace checks what is there as an ordinary write would, and says what speaks
// against replacing it.
func (c *call) mayReplace(to *spot) (obstacle string, err error) {
	switch {
	case to.name == ".":
		return "", &problem{unix.EISDIR, "is a folder"}
	case to.st == nil && c.NoCreate:
		return "", unix.ENOENT
	case to.st == nil:
		return "", nil
	case c.Exclusive:
		return "", unix.EEXIST
	}
	if err := readable(&unix.Stat_t{Mode: uint32(to.st.Mode)}, false); err != nil {
		return "", err
	}
	if err := unix.Faccessat(to.dir, to.name, unix.W_OK, 0); err != nil {
		return "", err
	}
	switch {
	case to.st.Nlink > 1:
		return "has several names (hard links)", nil
	case to.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return "is a mount point", nil
	}
	return "", nil
}

// temp is a new file that nobody knows of.
type temp struct {
	dir, fd int
	name    string
	moved   bool
}

func newTemp(dir int) (*temp, error) {
	t := &temp{dir: dir, name: tempName()}
	var err error
	t.fd, err = openat(dir, t.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	return t, err
}

// tempName is a name that is not in use, for files that another is made of.
func tempName() string { return ".hutch-" + strings.ToLower(rand.Text()[:16]) + ".tmp" }

// owned gives the file to the owner of the one that it replaces.
func (t *temp) owned(st *unix.Statx_t) bool {
	var own unix.Stat_t
	if unix.Fstat(t.fd, &own) != nil {
		return false
	}
	return own.Uid == st.Uid && own.Gid == st.Gid || unix.Fchown(t.fd, int(st.Uid), int(st.Gid)) == nil
}

func (t *temp) remove() {
	_ = unix.Close(t.fd)
	if !t.moved {
		_ = unix.Unlinkat(t.dir, t.name, 0)
	}
}

func (c *call) writeAtomic(src io.Reader, to *spot, tmp *temp) (*filesapi.Reply, error) {
	n, err := c.copyTo(tmp.fd, src)
	if err != nil {
		return nil, err
	}
	mode := uint32(defaultFile)
	if to.st != nil {
		mode = uint32(to.st.Mode & 0o7777)
	}
	if c.Mode != nil {
		mode = uint32(*c.Mode)
	}
	if err := unix.Fchmod(tmp.fd, mode); err != nil {
		return nil, err
	}
	if err := c.mark(tmp.fd); err != nil {
		return nil, err
	}
	flags := uint(0)
	if c.Exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	if c.Version != "" {
		err = tmp.exchange(to, c.Version)
	} else {
		err = unix.Renameat2(tmp.dir, tmp.name, to.dir, to.name, flags)
		tmp.moved = err == nil
	}
	if err == nil {
		return &filesapi.Reply{Bytes: n, Size: n, Created: to.st == nil, Atomic: true}, nil
	}
	if c.Exclusive || c.Atomic || to.st == nil || errors.Is(err, unix.ESTALE) {
		return nil, err
	}
	// Another's file in a folder like /tmp, say: it may be written and not replaced.
	if _, serr := unix.Seek(tmp.fd, 0, io.SeekStart); serr != nil {
		return nil, err
	}
	return c.writeInto(file(tmp.fd))
}

// copyTo writes all of src, and makes sure that it was all.
func (c *call) copyTo(fd int, src io.Reader) (int64, error) {
	n, err := io.CopyBuffer(file(fd), struct{ io.Reader }{src}, make([]byte, buffer))
	switch {
	case err != nil:
		return n, err
	case c.ctx.Err() != nil:
		return n, unix.ECANCELED
	case c.Size != nil && n != *c.Size:
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// writeInto writes into the file itself.
func (c *call) writeInto(src io.Reader) (*filesapi.Reply, error) {
	fd, created, err := c.openInto()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := readable(&st, false); err != nil { // it was another one a moment ago
		return nil, err
	}
	if c.Version != "" && version(&st) != c.Version {
		return nil, errChanged
	}
	switch {
	case c.Append:
	case c.At:
		_, err = unix.Seek(fd, c.Offset, io.SeekStart)
	default:
		err = unix.Ftruncate(fd, 0)
	}
	if err != nil {
		return nil, err
	}
	r := &filesapi.Reply{Created: created}
	if r.Bytes, err = c.copyTo(fd, src); err != nil {
		return nil, err
	}
	if c.Mode != nil {
		if err := unix.Fchmod(fd, uint32(*c.Mode)); err != nil {
			return nil, err
		}
	}
	if err := c.mark(fd); err != nil {
		return nil, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	r.Size = st.Size
	return r, nil
}

// openInto opens the file to write into it, and makes it where it is missing.
func (c *call) openInto() (fd int, created bool, err error) {
	flags := unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if c.Append {
		flags |= unix.O_APPEND
	}
	if !c.Exclusive {
		var st unix.Stat_t
		err = unix.Stat(c.Path, &st)
		if err == nil {
			err = readable(&st, false)
		}
		if err == nil {
			fd, err = openat(unix.AT_FDCWD, c.Path, flags, 0)
		}
		if !errors.Is(err, unix.ENOENT) || c.NoCreate || c.Version != "" {
			return fd, false, err
		}
	} else {
		flags |= unix.O_EXCL
	}
	fd, err = openat(unix.AT_FDCWD, c.Path, flags|unix.O_CREAT, defaultFile)
	return fd, true, err
}
