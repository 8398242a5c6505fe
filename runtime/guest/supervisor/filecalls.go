package supervisor

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// need is what a call wants of a path.
type need int

const (
	needOpen    need = iota // by the flags of open(2)
	needOpenHow             // by those of a struct open_how
	needWrite               // an existing file or a new name
	needLength              // an existing file
	needName                // a new name
	needRemove
	needRename  // the old name
	needReplace // the new one
	needMode
	needOwner
)

// noArg is instead of the number of an argument that a call does not have.
const noArg = -1

// fileStep is a path of a call, by the numbers of the arguments.
type fileStep struct {
	need     need
	dir      int // the folder's fd
	path     int
	flags    int // open(2)'s, or the struct's address; of needOwner the uid
	noFollow bool
	at       int // AT_* flags, 0 for none: no call has them first
}

// fileCalls are those whose refusals are reported in debug mode. Not execve: between fork and the stub PID 1 makes
// that call itself in vfork, and its Go runtime may be waiting for it with everything stopped.
var fileCalls = map[uint32][]fileStep{
	unix.SYS_OPENAT:    {{need: needOpen, dir: 0, path: 1, flags: 2}},
	unix.SYS_OPENAT2:   {{need: needOpenHow, dir: 0, path: 1, flags: 2}},
	unix.SYS_TRUNCATE:  {{need: needLength, dir: noArg, path: 0}},
	unix.SYS_MKDIRAT:   {{need: needName, dir: 0, path: 1}},
	unix.SYS_MKNODAT:   {{need: needName, dir: 0, path: 1}},
	unix.SYS_SYMLINKAT: {{need: needName, dir: 1, path: 2}},
	unix.SYS_LINKAT:    {{need: needName, dir: 2, path: 3}},
	unix.SYS_UNLINKAT:  {{need: needRemove, dir: 0, path: 1}},
	unix.SYS_RENAMEAT:  {{need: needRename, dir: 0, path: 1}, {need: needReplace, dir: 2, path: 3}},
	unix.SYS_RENAMEAT2: {{need: needRename, dir: 0, path: 1}, {need: needReplace, dir: 2, path: 3}},
	unix.SYS_FCHMODAT:  {{need: needMode, dir: 0, path: 1}},
	unix.SYS_FCHMODAT2: {{need: needMode, dir: 0, path: 1, at: 3}},
	unix.SYS_FCHOWNAT:  {{need: needOwner, dir: 0, path: 1, flags: 2, at: 4}},
}

// judgement is why a path is refused: by at, the path itself or a folder above it.
type judgement struct {
	errno unix.Errno
	path  string
	op    string
	at    guestapi.RefusedAt
}

// look says what of the files that a call is about is going to be refused; nil when nothing is, or it cannot be
// told. The caller waits meanwhile; what it does afterwards is its own business, and that of its other threads.
func (j *judge) look(n *sys.SeccompNotification) *judgement {
	t, err := j.target(int(n.PID))
	if err != nil {
		return nil
	}
	defer t.close()
	for _, step := range fileCalls[n.NR] {
		if found := t.judge(&step, n); found != nil {
			return found
		}
	}
	return nil
}

func (t *target) judge(step *fileStep, n *sys.SeccompNotification) *judgement {
	path, err := t.text(n.Args[step.path])
	if err != nil || path == "" { // of an fd, which is open already
		return nil
	}
	start, err := t.start(step, n, path)
	if err != nil {
		return nil
	}
	follow := !step.noFollow && (step.at == 0 || n.Args[step.at]&unix.AT_SYMLINK_NOFOLLOW == 0)
	switch step.need {
	case needOpen:
		return t.judgeOpen(start, path, int(uint32(n.Args[step.flags])))
	case needOpenHow:
		how, err := t.bytes(n.Args[step.flags], 24) // struct open_how
		if err != nil || binary.NativeEndian.Uint64(how[16:])&unix.RESOLVE_IN_ROOT != 0 {
			return nil
		}
		return t.judgeOpen(start, path, int(binary.NativeEndian.Uint64(how)))
	case needWrite:
		return t.judgeOpen(start, path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	case needLength:
		return t.judgeOpen(start, path, unix.O_WRONLY)
	case needMode, needOwner:
		p, found := t.find(start, path, follow, opOf(step.need))
		if p == nil {
			return found
		}
		defer p.close()
		uid := uint32(n.Args[step.flags])
		return t.judgeOwner(p, step.need, uid)
	default:
		p, found := t.find(start, path, false, opOf(step.need))
		if p == nil {
			return found
		}
		defer p.close()
		if step.need == needName {
			return t.judgeName(p, opOf(step.need))
		}
		return t.judgeRemove(p, step.need)
	}
}

func opOf(n need) string {
	return map[need]string{
		needName: guestapi.FileCreate, needRemove: guestapi.FileRemove, needRename: guestapi.FileRename,
		needReplace: guestapi.FileRename, needMode: guestapi.FileMode, needOwner: guestapi.FileOwner,
	}[n]
}

// judgeOpen is the kernel's own answer first (faccessat2), which almost always is that nothing is refused.
func (t *target) judgeOpen(start int, path string, flags int) *judgement {
	var mode uint32
	op := guestapi.FileRead
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		mode = unix.R_OK
	case unix.O_WRONLY:
		mode, op = unix.W_OK, guestapi.FileWrite
	case unix.O_RDWR:
		mode, op = unix.R_OK|unix.W_OK, guestapi.FileWrite
	}
	if flags&unix.O_TRUNC != 0 {
		mode, op = mode|unix.W_OK, guestapi.FileWrite
	}
	unnamed := flags&unix.O_TMPFILE == unix.O_TMPFILE
	switch {
	case unnamed:
		mode, op = unix.W_OK|unix.X_OK, guestapi.FileCreate
	case flags&unix.O_PATH != 0:
		mode = unix.F_OK
	}
	look := unix.AT_EACCESS
	if flags&unix.O_NOFOLLOW != 0 {
		look |= unix.AT_SYMLINK_NOFOLLOW
	}
	if !t.moved {
		err := sys.Access(start, path, mode, look)
		if !refusal(err) && (!errors.Is(err, unix.ENOENT) || flags&unix.O_CREAT == 0) {
			return nil
		}
	}
	p, found := t.find(start, path, flags&unix.O_NOFOLLOW == 0, op)
	if p == nil {
		return found
	}
	defer p.close()
	kind := p.st.Mode & unix.S_IFMT
	switch {
	case p.fd < 0 && flags&unix.O_CREAT != 0:
		return t.judgeName(p, guestapi.FileCreate)
	case p.fd < 0, flags&(unix.O_CREAT|unix.O_EXCL) == unix.O_CREAT|unix.O_EXCL, kind == unix.S_IFLNK,
		kind == unix.S_IFDIR && !unnamed && mode&unix.W_OK != 0: // fail, but of another reason
		return nil
	}
	return t.told(p, p.fd, sys.Access(p.fd, "", mode, unix.AT_EACCESS|unix.AT_EMPTY_PATH), op)
}

// judgeName is about a new name.
func (t *target) judgeName(p *place, op string) *judgement {
	if p.fd >= 0 || p.parent < 0 {
		return nil // EEXIST
	}
	if readOnly(p.parent) { // before the modes: the kernel takes the mount's write access first
		return t.told(p, p.parent, unix.EROFS, op)
	}
	return t.told(p, p.parent, sys.Access(p.parent, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH), op)
}

func (t *target) judgeRemove(p *place, n need) *judgement {
	if p.fd < 0 && n == needReplace {
		return t.judgeName(p, opOf(n))
	}
	if p.fd < 0 || p.parent < 0 {
		return nil
	}
	if readOnly(p.parent) {
		return t.told(p, p.parent, unix.EROFS, opOf(n))
	}
	if err := sys.Access(p.parent, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH); err != nil {
		return t.told(p, p.parent, err, opOf(n))
	}
	var dir unix.Stat_t
	switch err := unix.Fstat(p.parent, &dir); {
	case err != nil:
		return nil
	case dir.Mode&unix.S_ISVTX != 0 && t.uid != p.st.Uid && t.uid != dir.Uid && !t.has(unix.CAP_FOWNER):
		return t.told(p, p.parent, unix.EPERM, opOf(n))
	case p.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return t.told(p, p.fd, unix.EBUSY, opOf(n))
	}
	return nil
}

// judgeOwner is about mode and owner; uid is the new one's.
func (t *target) judgeOwner(p *place, n need, uid uint32) *judgement {
	const same = ^uint32(0)
	switch {
	case p.fd < 0:
		return nil
	case readOnly(p.fd):
		return t.told(p, p.fd, unix.EROFS, opOf(n))
	case n == needMode && t.uid != p.st.Uid && !t.has(unix.CAP_FOWNER),
		n == needOwner && !t.has(unix.CAP_CHOWN) && (t.uid != p.st.Uid || uid != same && uid != p.st.Uid):
		return t.told(p, p.fd, unix.EPERM, opOf(n))
	}
	return nil
}

// find walks to path; no place and a judgement when a folder on the way may not be searched.
func (t *target) find(start int, path string, follow bool, op string) (*place, *judgement) {
	p, err := t.walk(start, path, follow)
	if err == nil {
		return p, nil
	}
	if p == nil {
		return nil, nil
	}
	defer p.close()
	return nil, t.told(p, p.parent, err, op)
}

// told is the judgement that err of what fd is means for p; nil for errors that are nobody's refusal.
func (t *target) told(p *place, fd int, err error, op string) *judgement {
	var errno unix.Errno
	if !refusal(err) || !errors.As(err, &errno) {
		return nil
	}
	f := &judgement{errno: errno, op: op, path: t.name(p)}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || f.path == "" {
		return nil
	}
	f.at = guestapi.RefusedAt{UID: st.Uid, GID: st.Gid, Mode: st.Mode, FSUID: t.uid, FSGID: t.gid}
	if fd == p.parent {
		f.at.Path = t.nameOf(fd)
	}
	return f
}

// refusal reports whether err is one: what is not there, or busy, was not refused.
func refusal(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EBUSY)
}
