// Package treecopy copies folders whose content is hostile: the upper folders of overlays, which a sandbox has written.
//
// Nothing is followed: each name is looked at, opened and made by a call that takes an open folder and one last
// component, and what a name turned into meanwhile is an error or left as it was first seen. Regular files share their
// blocks where the file system has reflinks; holes stay holes.
package treecopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
)

// MaxDepth is how deep folders may be nested: two are open for each level, of each copier.
const MaxDepth = 500

// ErrTooDeep says that folders are nested deeper.
var ErrTooDeep = fmt.Errorf("folders are nested more than %d deep", MaxDepth)

// ErrChanged says that a name became something else while it was copied.
var ErrChanged = errors.New("changed while it was copied")

// batch is how many names of a folder are read at once.
const batch = 256

// Tree copies what is in src into dst, an empty folder that is nobody else's, with src's own owner, mode and
// attributes. src should stand still; where it does not, each file is what it was at some time of the copy, or the copy
// fails. What it returns are the files that were copied, their bytes as allocated in src.
func Tree(ctx context.Context, src, dst *os.File) (diskuse.Usage, error) {
	return TreeWith(ctx, src, dst, Options{})
}

// Options change how a tree is copied.
type Options struct {
	// Each is asked about each name before it is copied, another name of a file too; its error ends the copy.
	Each func(*unix.Stat_t) error
	// MaxDepth is how deep folders may be nested, at most and by default the constant of this name.
	MaxDepth int
	// MaxLinks bounds the names of files with several names that are remembered, in bytes; behind it each name is a
	// file of its own. 0 is no bound.
	MaxLinks int
	// Alone copies in the caller's goroutine only.
	Alone bool
	// AnyDevice is for what is seen through an overlay, where files of the layers below have devices of their own
	// (overlayfs.rst). Nothing may be mounted in src then: it would be copied, too.
	AnyDevice bool
}

// TreeWith is Tree with options.
func TreeWith(ctx context.Context, src, dst *os.File, o Options) (diskuse.Usage, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return diskuse.Usage{}, err
	}
	return copyAll(ctx, o, &folder{src: src, dst: dst, st: st, depth: 1})
}

type inode struct{ dev, ino uint64 }

type copier struct {
	ctx  context.Context
	crew *crew
	path []string // names from the top to where the copy is
	// cloneless says that this file system cannot share blocks.
	cloneless bool
	buf       []byte
}

// folder copies what is in src into dst, and then src's owner, mode, attributes and times.
func (c *copier) folder(src, dst *os.File, st *unix.Stat_t, depth int) error {
	if depth > MaxDepth || c.crew.MaxDepth > 0 && depth > c.crew.MaxDepth {
		return ErrTooDeep
	}
	c.crew.count(st)
	for {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		names, err := src.Readdirnames(batch)
		for _, name := range names {
			c.path = append(c.path, name)
			if err := c.entry(src, dst, name, depth); err != nil {
				return err
			}
			c.path = c.path[:len(c.path)-1]
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return finish(int(src.Fd()), int(dst.Fd()), st)
}

func (c *copier) entry(src, dst *os.File, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(src.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Dev != c.crew.dev && !c.crew.AnyDevice {
		return fmt.Errorf("%w: something is mounted there", ErrChanged)
	}
	if c.crew.Each != nil {
		if err := c.crew.Each(&st); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.subfolder(src, dst, name, &st, depth)
	}
	if st.Nlink > 1 {
		c.crew.linking.Lock()
		defer c.crew.linking.Unlock()
		done, err := c.link(dst, name, &st)
		if done || err != nil {
			return err
		}
	}
	c.crew.count(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(src, dst, name, &st)
	case unix.S_IFLNK:
		return symlink(src, dst, name, &st)
	case unix.S_IFCHR, unix.S_IFBLK:
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 { // no sandbox can have made one
			return fmt.Errorf("%w: a device", ErrChanged)
		}
	}
	// A fifo, a socket, or 0:0, by which overlayfs hides a name below.
	if err := unix.Mknodat(int(dst.Fd()), name, st.Mode&unix.S_IFMT|0o600, int(st.Rdev)); err != nil {
		return err
	}
	return finishName(dst, name, &st)
}

func (c *copier) subfolder(src, dst *os.File, name string, st *unix.Stat_t, depth int) error {
	from, err := open(src, name, unix.O_RDONLY|unix.O_DIRECTORY, st)
	if err != nil {
		return err
	}
	to, err := makeFolder(dst, name, st)
	if err != nil {
		from.Close()
		return err
	}
	if c.leave(from, to, st, depth+1) {
		return nil
	}
	defer from.Close()
	defer to.Close()
	return c.folder(from, to, st, depth+1)
}

func makeFolder(dst *os.File, name string, st *unix.Stat_t) (*os.File, error) {
	if err := unix.Mkdirat(int(dst.Fd()), name, st.Mode&0o777|0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(dst.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// open opens name, which must be what st says.
func open(dir *os.File, name string, flags int, st *unix.Stat_t) (*os.File, error) {
	fd, err := openFD(int(dir.Fd()), name, flags, st)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openFD is open without what an os.File asks the kernel for.
func openFD(dir int, name string, flags int, st *unix.Stat_t) (int, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Ino != st.Ino || now.Dev != st.Dev ||
		now.Mode&unix.S_IFMT != st.Mode&unix.S_IFMT {
		_ = unix.Close(fd)
		return -1, errors.Join(ErrChanged, err)
	}
	return fd, nil
}

// link gives a file that was copied under another name this one. Where the name of the copy is too long to walk it
// becomes a file of its own.
func (c *copier) link(dst *os.File, name string, st *unix.Stat_t) (done bool, err error) {
	id := inode{st.Dev, st.Ino}
	at, known := c.crew.links[id]
	if !known {
		size := len(c.path)
		for _, name := range c.path {
			size += len(name)
		}
		// else nobody could walk it
		if c.crew.names += size; size < unix.PathMax && (c.crew.MaxLinks == 0 || c.crew.names <= c.crew.MaxLinks) {
			c.crew.links[id] = strings.Join(c.path, "/")
		}
		return false, nil
	}
	err = unix.Linkat(c.crew.top, at, int(dst.Fd()), name, 0)
	if errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.EMLINK) {
		return false, nil
	}
	return err == nil, err
}

func symlink(src, dst *os.File, name string, st *unix.Stat_t) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(src.Fd()), name, buf)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(string(buf[:n]), int(dst.Fd()), name); err != nil {
		return err
	}
	return finishName(dst, name, st)
}

func (c *copier) file(src, dst *os.File, name string, st *unix.Stat_t) error {
	from, err := openFD(int(src.Fd()), name, unix.O_RDONLY, st)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := unix.Openat(int(dst.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		st.Mode&0o777)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := c.content(from, to, st); err != nil {
		return err
	}
	return finish(from, to, st)
}

// Content copies the first size bytes of an open file to a new one: by a reflink where the file system has them, and
// holes stay holes. A file that is shorter by now ends in one.
func Content(ctx context.Context, from, to *os.File, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return err
	}
	st.Size = size
	if err := (&copier{ctx: ctx}).content(int(from.Fd()), int(to.Fd()), &st); err != nil {
		return err
	}
	return to.Truncate(size) // a hole at the end, or what a reflink has of a file that has grown
}

// small is what is read and written at once: of a file without holes that takes two thirds of what copy_file_range(2)
// takes, which without reflinks is a pipe.
const small = 64 << 10

// content copies the bytes that st counts; finish sees to the size.
func (c *copier) content(from, to int, st *unix.Stat_t) error {
	size := st.Size
	if size == 0 {
		return nil
	}
	if !c.cloneless {
		err := unix.IoctlFileClone(to, from)
		if err == nil {
			return nil
		}
		c.cloneless = true
	}
	if size <= small && st.Blocks*512 >= size {
		return c.bytes(from, to, 0, size)
	}
	for at := int64(0); at < size; {
		begin, err := unix.Seek(from, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(from, begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := c.piece(from, to, begin, min(end, size)); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// piece copies the bytes from at up to end.
func (c *copier) piece(from, to int, at, end int64) error {
	for at < end {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		in, out := at, at
		n, err := unix.CopyFileRange(from, &in, to, &out, int(min(end-at, 64<<20)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP),
			errors.Is(err, unix.ENOSYS):
			return c.bytes(from, to, at, end)
		case err != nil:
			return err
		case n == 0:
			return nil // it has become shorter
		}
		at += int64(n)
	}
	return nil
}

// bytes is piece by read and write.
func (c *copier) bytes(from, to int, at, end int64) error {
	if c.buf == nil {
		c.buf = make([]byte, 256<<10)
	}
	for at < end {
		if err := context.Cause(c.ctx); err != nil {
			return err
		}
		n, err := unix.Pread(from, c.buf[:min(end-at, int64(len(c.buf)))], at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for done := 0; done < n; {
			w, err := unix.Pwrite(to, c.buf[done:n], at+int64(done))
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			done += max(0, w)
		}
		at += int64(n)
	}
	return nil
}
