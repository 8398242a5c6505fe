package changes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/treecopy"
)

// Failure is a change that was not brought into the folder.
type Failure struct {
	Path string `json:"path"`
	Why  string `json:"why"`
	// Conflict says that somebody else has changed it: applied by force, that is lost.
	Conflict bool `json:"conflict,omitempty"`
}

// Apply brings changes that Find has found into the folder itself. A file is replaced in one step, so that whoever
// looks sees the old one or the new one; what fails is told, and the others are done all the same. What somebody else
// has changed is left alone unless force is set.
//
// Files keep the owner that they have, or are this process's. Set-user-ID and set-group-ID bits, extended attributes
// (and with them file capabilities) and times of the sandbox's are not brought along; a file whose content comes from
// the sandbox loses such bits of its own, too. What was brought is noted in applied, which may be nil.
func Apply(ctx context.Context, upper, lower *os.File, changes []Change, applied *Applied, force bool) (done []string,
	failed []Failure, err error) {
	a := &applier{ctx: ctx, upper: int(upper.Fd()), lower: int(lower.Fd()), applied: applied, force: force,
		swept: map[uint64]bool{}}
	for i := range changes {
		if err := context.Cause(ctx); err != nil {
			return done, failed, err
		}
		c := &changes[i]
		if c.Conflict != "" && !force {
			failed = append(failed, Failure{Path: c.Path, Why: c.Conflict, Conflict: true})
			continue
		}
		switch err := a.apply(c); {
		case errors.Is(err, errMeanwhile):
			failed = append(failed, Failure{Path: c.Path, Why: err.Error(), Conflict: true})
		case err != nil:
			failed = append(failed, Failure{Path: c.Path, Why: err.Error()})
		default:
			done = append(done, c.Path)
		}
	}
	return done, failed, nil
}

var errMeanwhile = errors.New("it was changed meanwhile")

// errInside is a file that is another now than when it was looked at: a hostile PID 1 goes on while all else stands
// still.
var errInside = errors.New("the sandbox is changing it")

// overflowID stands for owners that this process's user namespace has no number for (user_namespaces(7)).
const overflowID = 65534

type applier struct {
	ctx          context.Context // of Apply
	upper, lower int
	applied      *Applied
	force        bool
	swept        map[uint64]bool // folders, by inode, in which no file of an apply that was killed is left
}

// apply brings one change into the folder.
func (a *applier) apply(c *Change) error {
	if strings.Contains("pscb", c.Type) && c.Kind != Deleted {
		return errors.New("pipes, sockets and devices stay in the sandbox")
	}
	if c.Kind == Deleted {
		return a.remove(c, c.Path)
	}
	parent, base, err := a.parent(c.Path)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	a.sweep(parent)
	var old *unix.Stat_t
	var st unix.Stat_t
	switch err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		old = &st
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	if (c.Kind == Added || c.Kind == Renamed) && old != nil && !a.force &&
		(c.Type != "d" || old.Mode&unix.S_IFMT != unix.S_IFDIR) {
		return errMeanwhile
	}
	if c.Kind == Modified && c.Type != "d" {
		if err := a.unchanged(c, parent, base); err != nil {
			return err
		}
	}
	switch c.Type {
	case "d":
		err = a.folder(parent, base, c, old)
	case "l":
		err = a.link(parent, base, c)
	default:
		err = a.file(parent, base, c, old)
	}
	if err != nil {
		return err
	}
	a.applied.note(parent, base)
	if c.Kind != Renamed {
		return nil
	}
	return a.remove(c, c.From)
}

// parent opens the folder that a name is in.
func (a *applier) parent(p string) (fd int, base string, err error) {
	fd, err = sys.OpenBeneath(a.lower, path.Dir(p), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, "", fmt.Errorf("open the folder that it is in: %w", err)
	}
	return fd, path.Base(p), nil
}

func (a *applier) folder(parent int, base string, c *Change, old *unix.Stat_t) error {
	mode, err := mode(c, 0o755)
	if err != nil {
		return err
	}
	if old == nil {
		if err := unix.Mkdirat(parent, base, 0o700); err != nil {
			return err
		}
	}
	fd, err := sys.OpenBeneath(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Of the folder's own: whose files new ones are (setgid), and who may remove them (sticky).
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Fchmod(fd, mode|st.Mode&0o7000)
}

// mode is that of the change, or otherwise.
func mode(c *Change, otherwise uint32) (uint32, error) {
	if c.Mode == "" {
		return otherwise, nil
	}
	m, err := strconv.ParseUint(c.Mode, 8, 32)
	return uint32(m) & 0o777, err
}

func (a *applier) link(parent int, base string, c *Change) error {
	target, err := readlink(a.upper, c.Path)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(target, parent, base); !errors.Is(err, unix.EEXIST) {
		return err
	}
	tmp := tmpName()
	if err := unix.Symlinkat(target, parent, tmp); err != nil {
		return err
	}
	return a.replace(parent, tmp, base, c.Path)
}

// sweep removes what an apply has left in a folder that was killed between the two calls by which a file gets another's
// name. That of one that goes on is locked. A folder that cannot be listed keeps it.
func (a *applier) sweep(parent int) {
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil || a.swept[st.Ino] {
		return
	}
	a.swept[st.Ino] = true
	fd, err := unix.Openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	dir := os.NewFile(uintptr(fd), ".")
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, n := range names {
			if strings.HasPrefix(n, tmpPrefix) && len(n) == len(tmpName()) {
				removeLeft(parent, n)
			}
		}
		if err != nil {
			return // the end, or what comes to it
		}
	}
}

func removeLeft(parent int, name string) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
		unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlinkat(parent, name, 0)
	}
}

func (a *applier) file(parent int, base string, c *Change, old *unix.Stat_t) (err error) {
	src, err := Open(a.upper, c.Path)
	if err != nil {
		return err
	}
	defer src.Close()
	keep := uint32(0o644)
	if old != nil && old.Mode&unix.S_IFMT == unix.S_IFREG {
		keep = old.Mode & 0o777
	}
	bits, err := mode(c, keep)
	if err != nil {
		return err
	}
	// A file without a name: who is killed while it is filled leaves nothing.
	tmp := ""
	fd, err := unix.Openat(parent, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	// open(2): not on each file system
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		tmp = tmpName()
		fd, err = unix.Openat(parent, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), c.Path)
	defer func() { err = errors.Join(err, dst.Close()) }()
	defer func() {
		if err != nil && tmp != "" {
			err = errors.Join(err, unix.Unlinkat(parent, tmp, 0))
		}
	}()
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // see sweep, which leaves alone what it cannot lock
	if len(c.Hunks) > 0 {
		err = a.partial(dst, src, parent, base, c)
		bits = keep // of a part of the content, none of the mode
	} else {
		err = content(a.ctx, dst, src, c)
	}
	if err != nil {
		return err
	}
	if old != nil {
		if err := owner(fd, old); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, bits); err != nil {
		return err
	}
	if tmp == "" {
		if old == nil {
			if err := name(fd, parent, base); !errors.Is(err, unix.EEXIST) {
				return err
			}
			if !a.force {
				return errMeanwhile
			}
		}
		next := tmpName()
		if err := name(fd, parent, next); err != nil {
			return err
		}
		tmp = next
	}
	renamed := tmp
	tmp = "" // replace removes it
	return a.replace(parent, renamed, base, c.Path)
}

// name gives a file without one its first.
func name(fd, parent int, base string) error {
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), parent, base, unix.AT_SYMLINK_FOLLOW)
}

// content copies what was found at a change, and no more: a file that grows for ever fills nobody's disk, and neither
// does one that is all holes.
func content(ctx context.Context, dst, src *os.File, c *Change) error {
	if c.changed == (unix.StatxTimestamp{}) { // from the user's own folder
		st, err := src.Stat()
		if err != nil {
			return err
		}
		return treecopy.Content(ctx, src, dst, st.Size())
	}
	if err := treecopy.Content(ctx, src, dst, c.Size); err != nil {
		return err
	}
	return c.still(src)
}

// still makes sure that src is what was found.
func (c *Change) still(src *os.File) error {
	var st unix.Statx_t
	if err := unix.Statx(int(src.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	if int64(st.Size) != c.Size || st.Ctime != c.changed {
		return errInside
	}
	return nil
}

// owner makes a new file the old one's owner's.
func owner(fd int, old *unix.Stat_t) error {
	var made unix.Stat_t
	if err := unix.Fstat(fd, &made); err != nil {
		return err
	}
	if old.Uid == made.Uid && old.Gid == made.Gid {
		return nil
	}
	if old.Uid != made.Uid && old.Uid == overflowID || old.Gid != made.Gid && old.Gid == overflowID {
		return errors.New("its owner or group is none of yours and would be lost")
	}
	if err := unix.Fchown(fd, int(old.Uid), int(old.Gid)); err != nil {
		return fmt.Errorf("keep its owner: %w", err)
	}
	return nil
}

// replace gives what was made under another name its own.
func (a *applier) replace(parent int, tmp, base, p string) error {
	err := unix.Renameat(parent, tmp, parent, base)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		// By force, or a folder that was removed just before.
		if err = a.remove(&Change{}, p); err == nil {
			err = unix.Renameat(parent, tmp, parent, base)
		}
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(parent, tmp, 0))
	}
	return nil
}

// tmpPrefix begins the names of files that are there for a moment.
const tmpPrefix = ".hutch-apply-"

func tmpName() string { return tmpPrefix + strings.ToLower(rand.Text()[:12]) }
