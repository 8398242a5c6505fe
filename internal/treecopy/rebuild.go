package treecopy

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Rebuild makes in dst, an empty folder that is nobody else's, what a version says, of the objects in a folder. The
// version then describes dst, so that the next Look finds that nothing has changed there.
func Rebuild(ctx context.Context, n *Node, objects, dst *os.File) error {
	c := &copier{ctx: ctx, crew: &crew{top: int(dst.Fd()), links: map[inode]string{}}}
	if err := c.rebuild(n, objects, dst, 1); err != nil {
		return fmt.Errorf("make %s again: %w", path.Join(c.path...), err)
	}
	l := &looker{since: unix.NsecToTimespec(time.Now().Add(-young).UnixNano())}
	return l.restamp(dst, n)
}

// stat is what finish and finishName give a name.
func (n *Node) stat() *unix.Stat_t {
	return &unix.Stat_t{Mode: n.Mode, Uid: n.UID, Gid: n.GID, Atim: n.Atim, Mtim: n.Mtim}
}

func (c *copier) rebuild(n *Node, objects, dst *os.File, depth int) error {
	if depth > MaxDepth {
		return ErrTooDeep
	}
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	for _, sub := range n.Nodes {
		c.path = append(c.path, sub.Name)
		if err := c.again(sub, objects, dst, depth); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
	}
	fd := int(dst.Fd())
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	st := n.stat()
	if err := owner(fd, &now, st); err != nil {
		return err
	}
	for _, a := range n.Attrs {
		if err := unix.Fsetxattr(fd, a.Name, a.Value, 0); err != nil {
			return fmt.Errorf("attribute %q: %w", a.Name, err)
		}
	}
	return modeAndTimes(fd, &now, st)
}

// again makes one name.
func (c *copier) again(n *Node, objects, dst *os.File, depth int) error {
	switch n.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(int(dst.Fd()), n.Name, n.Mode&0o777|0o700); err != nil {
			return err
		}
		fd, err := unix.Openat(int(dst.Fd()), n.Name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		sub := os.NewFile(uintptr(fd), n.Name)
		defer sub.Close()
		return c.rebuild(n, objects, sub, depth+1)
	case unix.S_IFREG:
		if n.Links {
			if done, err := c.link(dst, n.Name, &unix.Stat_t{Ino: n.Object}); done || err != nil {
				return err
			}
		}
		return c.fromObject(n, objects, dst)
	case unix.S_IFLNK:
		if err := unix.Symlinkat(n.Target, int(dst.Fd()), n.Name); err != nil {
			return err
		}
	default: // as in entry
		if err := unix.Mknodat(int(dst.Fd()), n.Name, n.Mode&unix.S_IFMT|0o600, 0); err != nil {
			return err
		}
	}
	return finishName(dst, n.Name, n.stat())
}

// fromObject makes a file of its object, which has all that belongs to it.
func (c *copier) fromObject(n *Node, objects, dst *os.File) error {
	in, err := unix.Openat(int(objects.Fd()), ObjectName(n.Object), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	from := os.NewFile(uintptr(in), n.Name)
	defer from.Close()
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return err
	}
	out, err := unix.Openat(int(dst.Fd()), n.Name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		st.Mode&0o777)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(out), n.Name)
	defer to.Close()
	if err := c.content(in, out, &st); err != nil {
		return err
	}
	return finish(in, out, &st)
}

// restamp notes the inodes and times that names have in a tree that was made again.
func (l *looker) restamp(dir *os.File, n *Node) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	l.stamp(n, &st)
	for _, sub := range n.Nodes {
		if err := unix.Fstatat(int(dir.Fd()), sub.Name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			l.stamp(sub, &st)
			continue
		}
		below, err := open(dir, sub.Name, unix.O_RDONLY|unix.O_DIRECTORY, &st)
		if err != nil {
			return err
		}
		err = l.restamp(below, sub)
		below.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *looker) stamp(n *Node, st *unix.Stat_t) {
	n.Ino, n.Ctim, n.Mtim, n.Size, n.Young = st.Ino, st.Ctim, st.Mtim, st.Size, later(st.Ctim, l.since)
}
