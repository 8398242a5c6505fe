package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// maxDepth bounds the folders that are open at once while a tree is walked.
const maxDepth = 500

// stat describes one file.
func (c *call) stat() (*filesapi.Reply, error) {
	dir, name, err := enter(c.Path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	e, err := describe(dir, name, c.Follow)
	if err != nil {
		return nil, err
	}
	if c.Describe && hasAttributes(e) {
		e.Attributes = attributes(dir, name, c.Follow)
	}
	e.Path = []byte(path.Base(c.Path))
	return &filesapi.Reply{Entry: e}, nil
}

// describe is stat, and readlink of a symbolic link.
func describe(dir int, name string, follow bool) (*filesapi.Entry, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(dir, name, &st, flags) }); err != nil {
		return nil, err
	}
	e := &filesapi.Entry{
		Path: []byte(name), Mode: st.Mode, Size: max(st.Size, 0), MTime: mtime(&st), UID: st.Uid, GID: st.Gid,
		Version: version(&st),
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if target, err := readlink(dir, name); err == nil { // else it changed meanwhile
			e.Target = []byte(target)
		}
	}
	return e, nil
}

// mtime is the time of the last change, which a file system may hold for any year
// and RFC 3339 only up to 9999.
func mtime(st *unix.Stat_t) time.Time {
	t := time.Unix(st.Mtim.Unix()).UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// list describes what is in a folder and, with a depth, below it: each folder
// before what it holds, names in order. Symbolic links are not followed, except
// by the path of the folder itself.
func (c *call) list() (*filesapi.Reply, error) {
	fd, err := openat(unix.AT_FDCWD, c.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	l := &lister{c: c, left: c.Limit, skip: c.Offset, reply: &filesapi.Reply{}}
	l.out.WriteByte('[')
	if err := l.folder(fd, "", 1); err != nil {
		return nil, err
	}
	l.out.WriteByte(']')
	c.give(l.out.Bytes())
	return l.reply, nil
}

type lister struct {
	c     *call
	left  int64 // entries that may still be listed
	skip  int64 // entries to leave out before
	bytes int   // of all entries
	out   bytes.Buffer
	reply *filesapi.Reply
}

// folder lists one folder, whose fd it closes.
func (l *lister) folder(fd int, prefix string, depth int) error {
	dir := os.NewFile(uintptr(fd), prefix)
	defer dir.Close()
	// One more than fits says that there are more. A folder may hold millions: only
	// those that are listed are put in order, unless pages are to fit together.
	most := int64(maxNames)
	if !l.c.Ordered {
		most = min(l.left, most)
	}
	names, err := dir.Readdirnames(int(most) + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return bare(err)
	}
	if int64(len(names)) > most {
		l.reply.Truncated = true
	}
	slices.Sort(names)
	for _, name := range names {
		if l.c.ctx.Err() != nil {
			return unix.ECANCELED
		}
		if l.left == 0 {
			l.reply.Truncated = true
			return nil
		}
		if err := l.entry(fd, name, prefix, depth); err != nil {
			return err
		}
	}
	return nil
}

// maxNames bounds the names of one folder that are read at once.
const maxNames = 1 << 20

func (l *lister) entry(dir int, name, prefix string, depth int) error {
	e, err := describe(dir, name, false)
	if err != nil {
		return nil // removed meanwhile
	}
	e.Version = "" // a list is to be short
	e.Path = []byte(path.Join(prefix, name))
	if l.c.Describe && hasAttributes(e) {
		e.Attributes = attributes(dir, name, false)
	}
	fd, isDir := -1, e.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir && depth < l.c.Depth {
		fd, err = openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		switch {
		case depth == maxDepth || len(e.Path) > unix.PathMax/2 || errors.Is(err, unix.EMFILE):
			l.reply.Truncated = true
			if err == nil {
				_ = unix.Close(fd)
			}
			fd = -1
		case err != nil:
			e.Errno = int(errnoOf(err))
		}
	}
	if err := l.add(e); err != nil || fd < 0 {
		return err
	}
	return l.folder(fd, string(e.Path), depth+1)
}

// add sends an entry, many in one packet.
func (l *lister) add(e *filesapi.Entry) error {
	if l.skip > 0 {
		l.skip--
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if l.bytes += len(data) + 1; l.bytes > filesapi.MaxList-1 {
		l.left, l.reply.Truncated = 0, true
		return nil
	}
	if l.reply.Count > 0 {
		l.out.WriteByte(',')
	}
	l.out.Write(data)
	l.reply.Count++
	l.left--
	if l.out.Len() > flushAt {
		l.c.give(l.out.Bytes())
		l.out.Reset()
	}
	return nil
}

// flushAt is when entries are sent, in bytes: below what fits into one packet.
const flushAt = 48 << 10

// bare takes the name of an fd out of an error of package os.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
