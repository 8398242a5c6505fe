package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sparse"
)

// Options of Unpack.
type Options struct {
	// Hostile says that the archive comes out of a sandbox. Then no symbolic link
	// is followed on the way to an entry, links may lead only to what the archive
	// holds, and modes keep nothing but permissions.
	Hostile bool
	// Owner gives files to the uid and gid that the archive says, where this user
	// namespace has them and this process may.
	Owner bool
	// Root gives the folder itself the mode of the archive's topmost entry.
	Root bool
	// Folders gives folders that are there already the mode and time of the archive's, as if they were made.
	Folders bool
	// Guard, if it is there, names what of an entry is left out; "" is nothing. has tells what there is by now.
	Guard func(name string, folder bool, has func(name string) bool) string
	// MaxEntries and MaxBytes bound what is made; 0 is no bound.
	MaxEntries, MaxBytes int64
}

// ErrRefused is what no honest archive has in it, or too much of it.
var ErrRefused = errors.New("refused")

// Unpack reads a tar archive to its end and makes its files below the open folder
// dir. Nothing outside of it is changed, whatever the archive holds and whoever
// changes the tree meanwhile: each folder on the way is resolved beneath dir by
// the kernel (openat2(2), RESOLVE_BENEATH), and the last name is never followed.
//
// What exists is replaced, but a folder only merged with a folder. When Unpack
// fails, what it had made stays.
func Unpack(ctx context.Context, r io.Reader, dir int, opts Options) (Stats, error) {
	u := &unpacker{ctx: ctx, opts: opts, root: dir, tr: tar.NewReader(r), at: dir, buf: make([]byte, buffer)}
	if opts.Hostile {
		u.made = map[inode]bool{}
	}
	defer u.leave()
	for {
		h, err := u.tr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return u.stats, u.finish(r)
		case err != nil:
			return u.stats, fmt.Errorf("read the archive: %w", err)
		case ctx.Err() != nil:
			return u.stats, context.Cause(ctx)
		}
		if err := u.entry(h); err != nil {
			return u.stats, err
		}
	}
}

type unpacker struct {
	ctx   context.Context
	opts  Options
	root  int // fd, the caller's
	tr    *tar.Reader
	buf   []byte
	stats Stats

	// at is the open folder cwd, relative to root: that of the last entry.
	at  int
	cwd string

	lastGuarded string // of which others of its entries follow

	folders []folder       // made here, outer ones first
	kept    int            // bytes of their names
	made    map[inode]bool // regular files of a hostile archive
}

// folder is what is left to do for one when all entries are made: until then it
// must be writable.
type folder struct {
	name string
	head *tar.Header
}

// finish sets the attributes of folders and reads what follows the archive's end,
// so that its writer is not cut off.
func (u *unpacker) finish(r io.Reader) error {
	if _, err := io.CopyBuffer(writerOnly{io.Discard}, readerOnly{io.LimitReader(r, 1<<20)}, u.buf); err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	u.leave()
	for i := len(u.folders) - 1; i >= 0; i-- {
		f := u.folders[i]
		fd, err := u.openBeneath(f.name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = u.attributes(fd, f.head)
			_ = unix.Close(fd)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) { // removed meanwhile
			return fail("set attributes", f.name, err)
		}
	}
	return nil
}

// leave closes the folder of the last entry.
func (u *unpacker) leave() {
	if u.at != u.root {
		_ = unix.Close(u.at)
	}
	u.at, u.cwd = u.root, ""
}

// entry makes one entry.
func (u *unpacker) entry(h *tar.Header) error {
	name, err := u.clean(h.Name)
	if err != nil {
		return err
	}
	u.stats.Entries++
	if u.opts.MaxEntries > 0 && u.stats.Entries > u.opts.MaxEntries {
		return fmt.Errorf("over %d entries: %w", u.opts.MaxEntries, ErrRefused)
	}
	if u.guarded(name, h) {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name, h)
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeXGlobalHeader:
		u.stats.Entries--
		return nil
	default: // devices, fifos, and what other tars have invented
		u.stats.Entries--
		u.stats.skip(name)
		return nil
	}
	if name == "." {
		return fail("unpack", h.Name, unix.EISDIR)
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return fail("enter the folder of", name, err)
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.symlink(name, base, h.Linkname)
	case tar.TypeLink:
		return u.link(name, base, h.Linkname)
	}
	return u.file(name, base, h)
}

// guarded reports whether an entry is left out by Options.Guard, and counts what is, once for all that is below. A hard
// link to what was left out is as well.
func (u *unpacker) guarded(name string, h *tar.Header) bool {
	if u.opts.Guard == nil || name == "." || h.Typeflag == tar.TypeXGlobalHeader {
		return false
	}
	has := func(other string) bool {
		fd, err := u.openBeneath(other, unix.O_PATH|unix.O_NOFOLLOW)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err == nil
	}
	what := u.opts.Guard(name, h.Typeflag == tar.TypeDir, has)
	if what == "" && h.Typeflag == tar.TypeLink {
		if to, err := u.clean(h.Linkname); err == nil && u.opts.Guard(to, false, has) != "" {
			what = name
		}
	}
	if what == "" {
		return false
	}
	if what != u.lastGuarded {
		u.stats.guarded(what)
		u.lastGuarded = what
	}
	return true
}

// clean checks a name; "." is the folder itself. GNU tar and docker take the
// slashes off absolute names, and so is done for a user's archive; the archive of
// a sandbox has none, or lies.
func (u *unpacker) clean(name string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("entry %.256q %s: %w", name, why, ErrRefused)
	}
	switch {
	case strings.IndexByte(name, 0) >= 0:
		return refuse("has a NUL byte in its name")
	case strings.HasPrefix(name, "/") && u.opts.Hostile:
		return refuse("has an absolute name")
	case len(name) >= unix.PathMax || strings.Count(name, "/") > maxDepth:
		return refuse("is too deep")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return refuse("leads out of its folder")
		}
	}
	return path.Join(".", name), nil // never begins with a slash or ".."
}

// openBeneath opens a name that clean has returned.
func (u *unpacker) openBeneath(name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	if u.opts.Hostile {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	return openBeneath(u.root, name, &how)
}

// resolveRetries bounds lookups that the kernel gives up on because of a rename
// somewhere (openat2(2), EAGAIN): somebody may go on renaming for ever.
const resolveRetries = 1 << 10

// enter makes dir the open folder, and makes it where it is missing.
func (u *unpacker) enter(dir string) error {
	if dir == u.cwd || dir == "." && u.at == u.root {
		return nil
	}
	u.leave()
	if dir == "." {
		return nil
	}
	fd, err := u.openBeneath(dir, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		if err := u.enter(path.Dir(dir)); err != nil {
			return err
		}
		if err := unix.Mkdirat(u.at, path.Base(dir), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		u.leave()
		fd, err = u.openBeneath(dir, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return err
	}
	u.at, u.cwd = fd, dir
	return nil
}

// folder makes a folder or merges with the one there. One that is there keeps its
// attributes, without Options.Folders.
func (u *unpacker) folder(name string, h *tar.Header) error {
	if name == "." {
		if u.opts.Root {
			return u.later(name, h)
		}
		return nil
	}
	if err := u.enter(path.Dir(name)); err != nil {
		return fail("enter the folder of", name, err)
	}
	err := unix.Mkdirat(u.at, path.Base(name), 0o700)
	switch {
	case err == nil:
		return u.later(name, h)
	case errors.Is(err, unix.EEXIST):
		// A symbolic link to a folder beneath counts as one, unless hostile.
		if err = u.enter(name); err == nil && u.opts.Folders {
			err = u.later(name, h)
		}
		if err == nil {
			return nil
		}
	}
	return fail("make folder", name, err)
}

// maxKept bounds the names of folders that are kept, in bytes: an archive of very
// many is no honest one.
const maxKept = 64 << 20

// later notes a folder whose attributes are set at the end: of its header no more
// than that, the rest can be a megabyte.
func (u *unpacker) later(name string, h *tar.Header) error {
	if u.kept += len(name); u.kept > maxKept {
		return fmt.Errorf("over %d bytes of folder names: %w", maxKept, ErrRefused)
	}
	u.folders = append(u.folders, folder{name, &tar.Header{
		Typeflag: h.Typeflag, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime,
	}})
	return nil
}

// clear removes what is in the way of a new file.
func (u *unpacker) clear(base string) error {
	err := unix.Unlinkat(u.at, base, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// replace makes something that must not exist, in place of what does.
func (u *unpacker) replace(op, name, base string, create func() error) error {
	var err error
	for range replaceTries {
		if err = create(); !errors.Is(err, unix.EEXIST) {
			break
		}
		if err = u.clear(base); err != nil {
			break
		}
	}
	if err != nil {
		return fail(op, name, err)
	}
	return nil
}

// replaceTries is for a tree in which somebody else makes the same names.
const replaceTries = 16

func (u *unpacker) file(name, base string, h *tar.Header) error {
	if h.Size < 0 || u.opts.MaxBytes > 0 && h.Size > u.opts.MaxBytes-u.stats.Bytes {
		return fmt.Errorf("%s: over %d bytes in all: %w", name, u.opts.MaxBytes, ErrRefused)
	}
	var fd int
	err := u.replace("create", name, base, func() (err error) {
		fd, err = open(u.at, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, u.mode(h)&0o777)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if u.made != nil {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fail("stat", name, err)
		}
		u.made[inode{st.Dev, st.Ino}] = true
	}
	out := sparse.NewWriter(fd)
	n, err := io.CopyBuffer(out, readerOnly{u.tr}, u.buf)
	u.stats.Bytes += n
	if err == nil {
		err = out.End()
	}
	if err == nil {
		err = u.attributes(fd, h)
	}
	if err != nil {
		return fail("write", name, err)
	}
	return nil
}

// mode is what an entry gets.
func (u *unpacker) mode(h *tar.Header) uint32 {
	mode := uint32(h.Mode) & 0o7777
	if u.opts.Hostile {
		mode &= 0o777 // nor may it lock its new owner out:
		if mode |= 0o600; h.Typeflag == tar.TypeDir {
			mode |= 0o700
		}
	}
	return mode
}

// attributes sets owner, mode and time of a file or folder that was made here.
func (u *unpacker) attributes(fd int, h *tar.Header) error {
	if u.opts.Owner {
		err := unix.Fchown(fd, h.Uid, h.Gid)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	// Most files have it since they were made, and on an overlay each change costs as
	// much as that did.
	if mode := u.mode(h); st.Mode&0o7777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return err
		}
	}
	if s := h.ModTime.Unix(); s >= 0 && s <= math.MaxInt32 {
		t := unix.Timespec{Sec: s, Nsec: int64(h.ModTime.Nanosecond())}
		return unix.UtimesNanoAt(fd, "", []unix.Timespec{t, t}, unix.AT_EMPTY_PATH)
	}
	return nil
}

func (u *unpacker) symlink(name, base, target string) error {
	if target == "" || len(target) >= unix.PathMax || strings.IndexByte(target, 0) >= 0 {
		return fmt.Errorf("link %.256q: impossible target: %w", name, ErrRefused)
	}
	if u.opts.Hostile && !staysInside(name, target) {
		u.stats.Entries--
		u.stats.skip(name)
		return nil
	}
	return u.replace("link", name, base, func() error { return unix.Symlinkat(target, u.at, base) })
}

// staysInside reports whether a link can lead only to what lies in the same tree.
// name's folders are real ones. Going up is sound only before going down: the
// ".." of "a/.." is wherever the link a leads to. Going down may pass through
// other links, which stay inside too.
func staysInside(name, target string) bool {
	if strings.HasPrefix(target, "/") {
		return false
	}
	depth, down := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// link makes another name of a file that the archive holds.
func (u *unpacker) link(name, base, target string) error {
	target, err := u.clean(target)
	if err != nil {
		return err
	}
	from, err := u.openBeneath(path.Dir(target), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fail("link", name, err)
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstatat(from, path.Base(target), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail("link", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || u.made != nil && !u.made[inode{st.Dev, st.Ino}] {
		return fmt.Errorf("link %.256q to %.256q, which is no file of the archive: %w", name, target, ErrRefused)
	}
	if name == target {
		return nil
	}
	return u.replace("link", name, base, func() error { return unix.Linkat(from, path.Base(target), u.at, base, 0) })
}
