package supervisor

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/owners"
	"github.com/hutch-sh/hutch/internal/sys"
)

// chownCall says where the arguments of a call are; flags are fchownat(2)'s.
type chownCall struct {
	dir, path, uid, gid int
	flags               int
}

// chown gives a file to somebody. The owner that the kernel has stays the only one there is; it is asked first all the
// same, as the caller, and its refusal is the answer. The owner that was meant is put on record in the sandbox's own
// files.
func (c *emulation) chown(call *chownCall) outcome {
	uid, gid := c.id(call.uid), c.id(call.gid)
	if call.flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 || !is(uid) || !is(gid) || c.elsewhere() {
		return goesOn
	}
	t, err := c.judge.lone(c.tid)
	if err != nil {
		return goesOn
	}
	defer t.close()
	fd := c.file(t, call)
	if fd < 0 || !c.waits() { // the kernel says why not
		return goesOn
	}
	f, err := openOwned(fd)
	if err != nil {
		return failsOr(err)
	}
	if id, emulated := c.of(c.tid); emulated && !id.root() && !mayGive(&id, f, uid, gid) {
		return failsOr(unix.EPERM)
	}
	if err := sys.Marked(ownCall).Chown(fd, c.real(uid), c.real(gid)); err != nil {
		return failsOr(err)
	}
	return failsOr(f.give(uid, gid))
}

// real is the id that the kernel is asked for: the only one that there is, or none.
func (c *emulation) real(id uint32) uint32 {
	if id == unchanged {
		return id
	}
	return 0
}

// mayGive is the kernel's rule for who is not root.
func mayGive(id *identity, f *owned, uid, gid uint32) bool {
	return (uid == unchanged || uid == id.uid.e || uid == f.uid) && (gid == unchanged || id.in(gid) || gid == f.gid)
}

// file opens what a call names, by O_PATH, until t is closed; -1 where that is not to be had.
func (c *emulation) file(t *target, call *chownCall) int {
	text := ""
	if call.path != noArg {
		err := t.look()
		if err != nil {
			return -1
		}
		if text, err = t.text(c.n.Args[call.path]); err != nil || text == "" && call.flags&unix.AT_EMPTY_PATH == 0 {
			return -1
		}
	}
	start, err := t.start(&fileStep{dir: call.dir}, c.n, text)
	if err != nil {
		return -1
	}
	return t.node(start, text, call.flags&unix.AT_SYMLINK_NOFOLLOW == 0)
}

// node opens what name means for the process, by O_PATH, until t is closed; -1 where that is not to be had.
func (t *target) node(start int, name string, follow bool) int {
	if name == "" {
		return start
	}
	if !t.moved {
		at, flags := start, uint64(unix.O_PATH|unix.O_CLOEXEC)
		if at < 0 {
			at = unix.AT_FDCWD
		}
		if !follow {
			flags |= unix.O_NOFOLLOW
		}
		fd, err := sys.Marked(ownCall).
			Openat2(at, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_MAGICLINKS})
		if err == nil {
			t.opened = append(t.opened, fd)
			return fd
		}
		if !errors.Is(err, unix.ELOOP) {
			return -1
		}
	}
	p, err := t.walk(start, name, follow)
	if p == nil {
		return -1
	}
	for _, fd := range []int{p.parent, p.fd} {
		if fd >= 0 {
			t.opened = append(t.opened, fd)
		}
	}
	if err != nil {
		return -1
	}
	return p.fd
}

// owned is a file and the owner that is on record.
type owned struct {
	name     string // of the fd
	keeps    bool   // an owner can be put on record
	uid, gid uint32
}

// openOwned reads the record of what fd is. There is one of files and folders below the sandbox's root: not of the
// user's own folders, such as the workspace, which stay the user's, nor of what lies in memory.
func openOwned(fd int) (*owned, error) {
	var st, root unix.Statx_t
	const mask = unix.STATX_TYPE | unix.STATX_MNT_ID
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, mask, &st); err != nil {
		return nil, err
	}
	if err := unix.Statx(unix.AT_FDCWD, "/", unix.AT_NO_AUTOMOUNT, mask, &root); err != nil {
		return nil, err
	}
	kind := st.Mode & unix.S_IFMT
	f := &owned{
		name: "/proc/self/fd/" + strconv.Itoa(fd),
		keeps: st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id == root.Mnt_id &&
			(kind == unix.S_IFREG || kind == unix.S_IFDIR),
	}
	if f.keeps {
		var b [owners.MaxLen]byte
		if n, err := unix.Getxattr(f.name, owners.Xattr, b[:]); err == nil {
			f.uid, f.gid, _ = owners.Parse(b[:n])
		}
	}
	return f, nil
}

// GiveFolder puts an owner who does not exist on record for the folder that fd is.
func GiveFolder(fd int, uid, gid uint32) error {
	f, err := openOwned(fd)
	if err != nil {
		return err
	}
	return f.give(uid, gid)
}

// give puts a new owner on record.
func (f *owned) give(uid, gid uint32) error {
	uid, gid = or(uid, f.uid), or(gid, f.gid)
	if !f.keeps || uid == f.uid && gid == f.gid {
		return nil
	}
	var err error
	if uid == 0 && gid == 0 {
		err = unix.Removexattr(f.name, owners.Xattr)
	} else {
		err = unix.Setxattr(f.name, owners.Xattr, owners.Format(uid, gid), 0)
	}
	switch {
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.ENODATA):
		return nil // it cannot be remembered there
	}
	return err
}
