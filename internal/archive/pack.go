// Package archive makes tar archives of folders and unpacks them, on both sides of
// a sandbox's wall: hutch cp uses it on the host, where an archive that comes out
// of a sandbox is hostile, and a files worker inside. Either works on trees that
// somebody else may change at the same time: every step starts from an open
// folder, and no step leaves it.
package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/owners"
)

const (
	// maxDepth bounds the folders above an entry. Each is an open fd while a tree
	// is packed.
	maxDepth = 500
	// buffer is the unit of reading and writing.
	buffer = 256 << 10
)

// Stats count what was packed or unpacked.
type Stats struct {
	Entries int64
	Bytes   int64 // of regular files
	// Skipped are the entries that do not travel: devices, sockets and fifos, and
	// of a hostile archive links that lead out of it. The first few are named.
	Skipped int64
	Names   []string
	// Guarded are names that Options.Guard has left out, the first few.
	Guarded      int64
	GuardedNames []string
}

// maxNames bounds Stats.Names.
const maxNames = 10

func (s *Stats) skip(name string) {
	s.Skipped++
	if len(s.Names) < maxNames {
		s.Names = append(s.Names, name)
	}
}

func (s *Stats) guarded(name string) {
	s.Guarded++
	if len(s.GuardedNames) < maxNames {
		s.GuardedNames = append(s.GuardedNames, name)
	}
}

// Pack writes the file or tree name, of the folder parent, as a tar archive. Its
// topmost entry is called as; "" makes all names relative to the tree, whose own
// entry is then "./". Symbolic links are packed as such, hard links once. ctx ends
// it between two entries; a blocked write is for the caller to end.
func Pack(ctx context.Context, w io.Writer, parent int, name, as string) (Stats, error) {
	return pack(ctx, w, parent, name, as, nil)
}

// PackRoot writes the tree below the open folder dir as a root file system: as Pack
// does, with fifos and with the extended attributes that an image keeps. owner says
// whose each file is to be there.
func PackRoot(ctx context.Context, w io.Writer, dir int, owner func(uid, gid uint32) (int, int)) (Stats, error) {
	return pack(ctx, w, dir, ".", "", owner)
}

// PackRecorded is Pack, with the owners that are on record beside files where there is only one id (package owners).
func PackRecorded(ctx context.Context, w io.Writer, parent int, name, as string) (Stats, error) {
	return (&packer{ctx: ctx, recorded: true}).pack(w, parent, name, as)
}

// PackNames writes some names below the open folder dir, of folders only themselves, with their times to the
// nanosecond. The names are best in the order of a walk. What is not there, or not any more, is left out.
func PackNames(ctx context.Context, w io.Writer, dir int, names []string) (Stats, error) {
	p := &packer{ctx: ctx, flat: true}
	return p.write(w, func() error { return p.names(dir, names) })
}

func pack(ctx context.Context, w io.Writer, parent int, name, as string, owner func(uid, gid uint32) (int, int)) (Stats,
	error) {
	return (&packer{ctx: ctx, owner: owner}).pack(w, parent, name, as)
}

func (p *packer) pack(w io.Writer, parent int, name, as string) (Stats, error) {
	return p.write(w, func() error { return p.node(parent, name, as, 0) })
}

func (p *packer) write(w io.Writer, entries func() error) (Stats, error) {
	out := bufio.NewWriterSize(w, buffer)
	p.tw, p.linked, p.buf = tar.NewWriter(out), map[inode]string{}, make([]byte, buffer)
	err := entries()
	if err == nil {
		err = p.tw.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	return p.stats, err
}

type packer struct {
	ctx    context.Context
	tw     *tar.Writer
	linked map[inode]string // files with several names, by the first one packed
	buf    []byte
	stats  Stats
	owner  func(uid, gid uint32) (int, int) // of a root file system; else nil
	flat   bool                             // PackNames

	recorded bool // PackRecorded
}

// inode tells files apart.
type inode struct{ dev, ino uint64 }

// node packs one file or tree as the entry called as.
func (p *packer) node(parent int, name, as string, depth int) error {
	if err := p.ctx.Err(); err != nil {
		return context.Cause(p.ctx)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail("stat", orName(as, name), err)
	}
	h := &tar.Header{
		Name: orName(as, "."), Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()).Truncate(time.Second),
	}
	if p.owner != nil {
		h.Uid, h.Gid = p.owner(st.Uid, st.Gid)
	}
	if p.flat {
		h.ModTime, h.Format = time.Unix(st.Mtim.Unix()), tar.FormatPAX
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
		if p.flat {
			return p.header(h)
		}
		return p.folder(parent, name, as, h, depth)
	case kind == unix.S_IFREG:
		return p.file(parent, name, h)
	case kind == unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(parent, name, target)
		if errors.Is(err, unix.EINVAL) { // changed meanwhile
			p.stats.skip(h.Name)
			return nil
		}
		if err != nil {
			return fail("read link", h.Name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(target[:n])
		return p.header(h)
	case kind == unix.S_IFIFO && p.owner != nil:
		h.Typeflag = tar.TypeFifo
		return p.header(h)
	}
	p.stats.skip(h.Name)
	return nil
}

func orName(as, name string) string {
	if as == "" {
		return name
	}
	return as
}

func (p *packer) header(h *tar.Header) error {
	p.stats.Entries++
	if err := p.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", h.Name, err)
	}
	return nil
}

// folder packs a folder, names in order, so that equal trees give equal archives.
func (p *packer) folder(parent int, name, as string, h *tar.Header, depth int) error {
	if depth == maxDepth {
		return fail("pack", h.Name, fmt.Errorf("over %d folders deep: %w", maxDepth, unix.ENAMETOOLONG))
	}
	fd, err := open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fail("open", h.Name, err)
	}
	dir := os.NewFile(uintptr(fd), h.Name)
	defer dir.Close()
	if err := errors.Join(p.attributes(fd, h), p.header(h)); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fail("read", h.Name, errnoOf(err))
	}
	slices.Sort(names)
	for _, n := range names {
		err := p.node(fd, n, path.Join(as, n), depth+1)
		if errors.Is(err, unix.ENOENT) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names packs names below a folder. Links on the way are not followed: a walk did not, either.
func (p *packer) names(dir int, names []string) error {
	at, parent := ".", -1
	defer func() {
		if parent >= 0 {
			_ = unix.Close(parent)
		}
	}()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	for _, name := range names {
		if up := path.Dir(name); parent < 0 || up != at {
			fd, err := openBeneath(dir, up, how)
			if gone(err) {
				continue
			}
			if err != nil {
				return fail("open", up, err)
			}
			if parent >= 0 {
				_ = unix.Close(parent)
			}
			at, parent = up, fd
		}
		if err := p.node(parent, path.Base(name), name, 0); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// openBeneath is openat2(2), again when a signal came, or the kernel gave up because of a rename meanwhile.
func openBeneath(dir int, name string, how *unix.OpenHow) (fd int, err error) {
	for range resolveRetries {
		fd, err = unix.Openat2(dir, name, how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}

// gone says that a folder is none any more.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// file packs a regular file: as many bytes as its size says when it is opened,
// whatever becomes of it meanwhile.
func (p *packer) file(parent int, name string, h *tar.Header) error {
	fd, err := open(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return fail("open", h.Name, err)
	}
	f := os.NewFile(uintptr(fd), h.Name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", h.Name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG { // changed meanwhile
		p.stats.skip(h.Name)
		return nil
	}
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, ok := p.linked[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.header(h)
		}
		p.linked[id] = h.Name
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := errors.Join(p.attributes(fd, h), p.header(h)); err != nil {
		return err
	}
	n, err := io.CopyBuffer(writerOnly{p.tw}, readerOnly{io.LimitReader(f, st.Size)}, p.buf)
	p.stats.Bytes += n
	if err != nil {
		return fail("pack", h.Name, err)
	}
	clear(p.buf)
	for n < st.Size { // it shrank: the entry keeps its size
		k, err := p.tw.Write(p.buf[:min(st.Size-n, int64(len(p.buf)))])
		if err != nil {
			return fail("pack", h.Name, err)
		}
		n += int64(k)
	}
	return nil
}

// xattrPrefix is how a PAX header names an extended attribute; star(1) began it, and
// images have it.
const xattrPrefix = "SCHILY.xattr."

// attributes adds the extended attributes of a file of a root file system, or takes the owner out of them.
func (p *packer) attributes(fd int, h *tar.Header) error {
	if p.recorded {
		var b [owners.MaxLen]byte
		if n, err := unix.Fgetxattr(fd, owners.Xattr, b[:]); err == nil {
			if uid, gid, ok := owners.Parse(b[:n]); ok {
				h.Uid, h.Gid = int(uid), int(gid)
			}
		}
	}
	if p.owner == nil {
		return nil
	}
	list := make([]byte, 64<<10) // XATTR_LIST_MAX
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fail("list the attributes of", h.Name, err)
	}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") && name != "security.capability" {
			continue
		}
		value := make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err := unix.Fgetxattr(fd, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return fail("read the attribute "+name+" of", h.Name, err)
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[xattrPrefix+name] = string(value[:n])
	}
	return nil
}

// writerOnly and readerOnly hide methods by which io.CopyBuffer would choose a
// buffer of its own.
type (
	writerOnly struct{ io.Writer }
	readerOnly struct{ io.Reader }
)

// open is openat(2), close-on-exec, again when a signal came.
func open(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// fail says which entry failed. Its cause is an errno where a system call failed.
func fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// errnoOf takes the name of an fd out of an error of package os.
func errnoOf(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
