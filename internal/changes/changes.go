// Package changes finds what was changed in a folder that was seen through an overlay, from the overlay's
// upper folder and the folder itself, and whether somebody else has changed the folder meanwhile.
//
// Upper folders are a sandbox's: nothing in them is followed, nothing in them is believed, and a walk is bounded.
package changes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Kind is what became of a name.
type Kind string

// The kinds. A file that has become a folder, a link a file, and so on, is deleted and what is new is added.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	Renamed  Kind = "renamed"
)

// Change is one name that is another than in the folder.
type Change struct {
	Path string `json:"path"` // below the folder
	Kind Kind   `json:"kind"`
	From string `json:"from,omitempty"` // of Renamed: the name in the folder
	// Type is the first letter of ls -l: - d l, or p s c b, which cannot be brought back. Of what is deleted it is
	// that of the folder's.
	Type string `json:"type"`
	Mode string `json:"mode,omitempty"` // octal permission bits, where they were changed or are new
	Size int64  `json:"size,omitempty"` // in bytes, of a file
	// Conflict says what somebody else has done to the name in the folder after the sandbox touched it; "" is nothing.
	Conflict string `json:"conflict,omitempty"`
	// Hunks are the only ones of a modified text file that are to be applied, by their numbers from 1 in a diff with
	// Context lines around each change; none means all of the file.
	Hunks   []int `json:"-"`
	Context int   `json:"-"`

	// changed is when the sandbox changed it last, which it cannot choose.
	changed unix.StatxTimestamp
	// since is when the overlay copied it, or put something in its place: what is younger in the folder is somebody
	// else's.
	since unix.StatxTimestamp
}

// Digest stands for what was found: another one says that the sandbox has changed something since.
func Digest(found []Change) string {
	h := sha256.New()
	for _, c := range found {
		fmt.Fprintf(h, "%q %s %q %s %s %d %d.%d\n", c.Path, c.Kind, c.From, c.Type, c.Mode, c.Size, c.changed.Sec,
			c.changed.Nsec)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// MaxChanges and MaxText bound what is found: names, and bytes of them.
const (
	MaxChanges = 500_000
	MaxText    = 32 << 20
)

// ErrTooMany is a sandbox that has changed more.
var ErrTooMany = fmt.Errorf("more than %d names were changed, or %d bytes of names", MaxChanges, MaxText)

// Find compares upper, the upper folder of an overlay mounted with userxattr, with lower, its lower folder. What it
// returns is sorted by path, what is deleted before what has its place. Neither may be changed by the sandbox
// meanwhile; lower may by others.
func Find(ctx context.Context, upper, lower *os.File, applied *Applied) ([]Change, error) {
	f := &finder{ctx: ctx, upper: int(upper.Fd()), lower: int(lower.Fd()), applied: applied}
	top, err := stat(f.upper, ".")
	if err != nil {
		return nil, err
	}
	if top.Mask&unix.STATX_BTIME != 0 {
		f.born = top.Btime
	}
	if err := f.folder(".", true, nil); err != nil {
		return nil, err
	}
	if err := f.renames(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(f.found, func(a, b Change) int { return Order(a.Path, b.Path) })
	return f.found, nil
}

// Order compares paths: a folder comes before what is in it, and that before what follows the folder.
func Order(a, b string) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		switch {
		case x == y:
			continue
		case x == '/':
			return -1
		case y == '/':
			return 1
		}
		return cmp.Compare(x, y)
	}
	return cmp.Compare(len(a), len(b))
}

type finder struct {
	ctx          context.Context
	upper, lower int
	applied      *Applied
	// born is when the sandbox got its upper folder; zero where the file system does not tell.
	born  unix.StatxTimestamp
	found []Change
	text  int // bytes of their names
}

func (f *finder) add(c Change) error {
	if f.text += len(c.Path) + len(c.From); len(f.found) >= MaxChanges || f.text > MaxText {
		return ErrTooMany
	}
	f.found = append(f.found, c)
	return nil
}

// folder compares what is in a folder of upper. below says that lower has one of that name; where nothing of that was
// seen, opaque is what upper has in its place.
func (f *finder) folder(dir string, below bool, opaque *unix.Statx_t) error {
	if err := context.Cause(f.ctx); err != nil {
		return err
	}
	names, err := list(f.upper, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.name(path.Join(dir, name), below, opaque); err != nil {
			return err
		}
	}
	if !below || opaque == nil {
		return nil
	}
	old, err := list(f.lower, dir)
	if err != nil {
		return err
	}
	for _, name := range old { // hidden by a folder that was removed and made anew
		if _, found := slices.BinarySearch(names, name); !found {
			if err := f.removed(path.Join(dir, name), dir, opaque); err != nil {
				return err
			}
		}
	}
	return nil
}

// name compares one name of upper.
func (f *finder) name(p string, below bool, opaque *unix.Statx_t) error {
	now, err := stat(f.upper, p)
	if err != nil {
		return err
	}
	var old *unix.Statx_t
	if below {
		if old, err = stat(f.lower, p); errors.Is(err, unix.ENOENT) {
			old = nil
		} else if err != nil {
			return err
		}
	}
	switch {
	case isWhiteout(now):
		if old == nil {
			return nil // made and removed again
		}
		return f.removed(p, p, now)
	case kind(now) == unix.S_IFDIR:
		return f.subfolder(p, now, old, opaque)
	case old != nil && kind(now) != kind(old):
		if err := f.removed(p, p, now); err != nil {
			return err
		}
		old = nil
	}
	c := Change{Path: p, Kind: Added, Type: letter(now), Mode: permissions(now), changed: now.Ctime, since: now.Btime}
	if kind(now) == unix.S_IFREG {
		c.Size = int64(now.Size)
	}
	if old != nil {
		c.Kind = Modified
		same, err := f.same(p, now, old)
		if err != nil {
			return err
		}
		if now.Mode&0o777 == old.Mode&0o777 {
			if c.Mode = ""; same {
				return nil // copied up, and as it was
			}
		}
		if c.since, c.Conflict, err = f.meanwhile(old, p, now); err != nil {
			return err
		}
	}
	return f.add(c)
}

// subfolder compares a folder of upper.
func (f *finder) subfolder(p string, now, old *unix.Statx_t, opaque *unix.Statx_t) error {
	switch {
	case old == nil:
		if err := f.add(Change{Path: p, Kind: Added, Type: "d", Mode: permissions(now)}); err != nil {
			return err
		}
		return f.folder(p, false, nil)
	case kind(old) != unix.S_IFDIR:
		if err := f.removed(p, p, now); err != nil {
			return err
		}
		if err := f.add(Change{Path: p, Kind: Added, Type: "d", Mode: permissions(now)}); err != nil {
			return err
		}
		return f.folder(p, false, nil)
	}
	if now.Mode&0o777 != old.Mode&0o777 {
		// Whether somebody has changed the mode or what is in it meanwhile, a folder does not tell.
		_, conflict, err := f.meanwhile(old, p, now)
		if err != nil {
			return err
		}
		if err := f.add(Change{Path: p, Kind: Modified, Type: "d", Mode: permissions(now),
			Conflict: conflict}); err != nil {
			return err
		}
	}
	if opaque == nil {
		is, err := isOpaque(f.upper, p)
		if err != nil {
			return err
		}
		if is {
			opaque = now
		}
	}
	return f.folder(p, true, opaque)
}

// removed notes that a name of lower is gone, by what upper has at a path: in its place, or a folder above it.
func (f *finder) removed(p, at string, by *unix.Statx_t) error {
	old, err := stat(f.lower, p)
	if errors.Is(err, unix.ENOENT) {
		return nil // somebody else has removed it, too
	}
	if err != nil {
		return err
	}
	c := Change{Path: p, Kind: Deleted, Type: letter(old), changed: by.Ctime}
	if kind(old) == unix.S_IFREG {
		c.Size = int64(old.Size)
	}
	if c.since, c.Conflict, err = f.meanwhile(old, at, by); err != nil {
		return err
	}
	if c.Conflict == "" && kind(old) == unix.S_IFDIR {
		if c.Conflict, err = f.below(p, at, by); err != nil {
			return err
		}
	}
	return f.add(c)
}

// below looks for something in a folder of lower that was changed after by was made, which upper has at a path.
func (f *finder) below(dir, at string, by *unix.Statx_t) (string, error) {
	if err := context.Cause(f.ctx); err != nil {
		return "", err
	}
	names, err := list(f.lower, dir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		st, err := stat(f.lower, p)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return "", err
		}
		if _, why, err := f.meanwhile(st, at, by); err != nil {
			return "", err
		} else if why != "" {
			return p + ": " + why, nil
		}
		if kind(st) == unix.S_IFDIR {
			if why, err := f.below(p, at, by); why != "" || err != nil {
				return why, err
			}
		}
	}
	return "", nil
}

// meanwhile says whether the folder's own file was changed after the sandbox has touched it by what upper has at a
// path, and since when that counts. The change time of a file on the host is nobody's to choose.
func (f *finder) meanwhile(old *unix.Statx_t, at string, by *unix.Statx_t) (since unix.StatxTimestamp, conflict string,
	err error) {
	if by.Mask&unix.STATX_BTIME == 0 || f.born == (unix.StatxTimestamp{}) {
		return by.Btime, "the file system does not tell whether it was changed meanwhile", nil
	}
	// What the overlay has copied is as old as the copy, and a whiteout as the removal. What was made anew says nothing
	// of when the sandbox has seen the file last: it may have made it many times, by renaming, as editors do.
	copied := isWhiteout(by)
	if !copied {
		if copied, err = isCopied(f.upper, at, by); err != nil {
			return since, "", err
		}
	}
	switch {
	case copied:
		since, conflict = by.Btime, "it was changed meanwhile"
	default:
		since, conflict = f.born, "it was changed since the sandbox was made, which has put another in its place"
	}
	if !later(old.Ctime, since) || f.applied.has(old) {
		conflict = ""
	}
	return since, conflict, nil
}

func later(a, b unix.StatxTimestamp) bool {
	return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec
}

// same compares two files of one kind.
func (f *finder) same(p string, now, old *unix.Statx_t) (bool, error) {
	switch kind(now) {
	case unix.S_IFREG:
		if now.Size != old.Size {
			return false, nil
		}
		return f.sameContent(f.upper, p, f.lower, p)
	case unix.S_IFLNK:
		a, err := readlink(f.upper, p)
		if err != nil {
			return false, err
		}
		b, err := readlink(f.lower, p)
		return a == b, err
	}
	return false, nil
}

// Open opens a regular file below a folder, following no symlink; a named pipe does not keep it waiting.
func Open(dir int, p string) (*os.File, error) {
	fd, err := sys.OpenBeneath(dir, p, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	f := os.NewFile(uintptr(fd), p)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(err, &os.PathError{Op: "open", Path: p, Err: unix.EINVAL}, f.Close())
	}
	return f, nil
}

// list are the names in a folder, sorted.
func list(dir int, p string) ([]string, error) {
	fd, err := sys.OpenBeneath(dir, p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p, Err: err}
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	var names []string
	for size := 0; ; {
		some, err := f.Readdirnames(4096)
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		names = append(names, some...)
		for _, name := range some {
			size += len(name)
		}
		if size > MaxText || len(names) > MaxChanges {
			return nil, ErrTooMany
		}
	}
}

// stat describes a name below a folder, following no symlink.
func stat(dir int, p string) (*unix.Statx_t, error) {
	fd, err := sys.OpenBeneath(dir, p, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.ENOENT // one of the folders above is none
	}
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: p, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME,
		&st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: p, Err: err}
	}
	return &st, nil
}

func readlink(dir int, p string) (string, error) {
	fd, err := sys.OpenBeneath(dir, p, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: p, Err: err}
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: p, Err: err}
	}
	return string(buf[:n]), nil
}

func kind(st *unix.Statx_t) uint32 { return uint32(st.Mode) & unix.S_IFMT }

// isWhiteout: overlayfs' mark of what is removed is a character device 0:0.
func isWhiteout(st *unix.Statx_t) bool {
	return kind(st) == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0
}

// isOpaque: overlayfs' mark of a folder below which nothing of lower is seen.
func isOpaque(dir int, p string) (bool, error) {
	fd, err := sys.OpenBeneath(dir, p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer unix.Close(fd)
	var value [1]byte
	n, err := unix.Fgetxattr(fd, "user.overlay.opaque", value[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ERANGE) {
		return false, nil
	}
	return err == nil && n == 1 && value[0] == 'y', err
}

// isCopied: overlayfs marks what it has copied from lower.
func isCopied(dir int, p string, st *unix.Statx_t) (bool, error) {
	if k := kind(st); k != unix.S_IFREG && k != unix.S_IFDIR {
		return false, nil // has no such attributes
	}
	fd, err := sys.OpenBeneath(dir, p, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer unix.Close(fd)
	_, err = unix.Fgetxattr(fd, "user.overlay.origin", nil)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return err == nil, err
}

func letter(st *unix.Statx_t) string {
	switch kind(st) {
	case unix.S_IFREG:
		return "-"
	case unix.S_IFDIR:
		return "d"
	case unix.S_IFLNK:
		return "l"
	case unix.S_IFIFO:
		return "p"
	case unix.S_IFSOCK:
		return "s"
	case unix.S_IFBLK:
		return "b"
	}
	return "c"
}

// permissions are not those of a symlink, which has none of its own.
func permissions(st *unix.Statx_t) string {
	if kind(st) == unix.S_IFLNK {
		return ""
	}
	return fmt.Sprintf("%04o", st.Mode&0o777)
}
