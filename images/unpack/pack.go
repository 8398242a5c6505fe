package unpack

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/owners"
	"github.com/hutch-sh/hutch/internal/sys"
)

// PackOptions say what of a folder belongs to the layer.
type PackOptions struct {
	// Omit are paths that are left out, with all that is below them.
	Omit []string
	// Plain are folders, "." for the root, by their modes: one that belongs to 0:0, has
	// this mode and nothing in it that is packed gets no entry; the root gets none then
	// whatever is in it.
	Plain map[string]uint32
	// Implied are folders that get no entry, as in Stats; "" is the root.
	Implied []string
	// SingleUID is as in Options: owners are in the attribute OwnerXattr.
	SingleUID bool
	// Whole says that the folder is all layers together, or the lowest alone: what marks something as hidden is not
	// packed.
	Whole bool
	// Links are as in Stats.
	Links []LowerLink
	// MaxEntries bounds the nodes that are looked at; 0 means DefaultLimits.
	MaxEntries int64
}

// PackStats tell what is in a layer that was packed.
type PackStats struct {
	Entries int64 // of the tar stream
	Bytes   int64 // sizes of the regular files, hard links counted once
	// Nodes were left out: devices, sockets, and files that are called as whiteouts are
	// in a layer. The first few are named.
	Nodes int64
	Names []string
	// Xattrs were left out: no layer can hold them, or no sandbox may bring them.
	Xattrs int64
}

// maxLeftOut bounds PackStats.Names.
const maxLeftOut = 10

// ErrChanged marks a folder that changed while it was packed.
var ErrChanged = errors.New("it changed while it was read")

// Pack writes the folder root as a layer, an uncompressed tar stream: the inverse of
// Unpack, for the upper folder of an overlay mounted with userxattr as well as for what
// Unpack made. Equal folders give equal streams.
//
// The folder may be hostile, and may change: every node is opened below root without
// following a symlink, and what is said of it is what its open file says.
func Pack(ctx context.Context, root *os.File, w io.Writer, o PackOptions) (PackStats, error) {
	out := bufio.NewWriterSize(w, 256<<10)
	p := &layerPacker{
		out: out, tw: tar.NewWriter(out), o: o, left: o.MaxEntries, omit: set(o.Omit), implied: set(o.Implied),
		linked: make(map[inode]string), buf: make([]byte, copyBuffer), list: make([]byte, 64<<10),
		value: make([]byte, 64<<10),
	}
	if p.left == 0 {
		p.left = DefaultLimits.MaxEntries
	}
	err := Walk(ctx, root, p.visit)
	if err == nil {
		err = p.lowerLinks()
	}
	if err == nil {
		err = p.tw.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	return p.stats, err
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[path.Clean(n)] = true // "" is "."
	}
	return m
}

type layerPacker struct {
	out           *bufio.Writer
	tw            *tar.Writer // writes to out, without a buffer
	o             PackOptions
	left          int64
	omit, implied map[string]bool
	linked        map[inode]string // files with several names, by the first one packed
	pending       *tar.Header      // of a folder of PackOptions.Plain
	stats         PackStats
	buf           []byte
	list, value   []byte // of extended attributes: XATTR_LIST_MAX, XATTR_SIZE_MAX
}

// inode tells files apart.
type inode struct{ dev, ino uint64 }

func (p *layerPacker) visit(n *Node) error {
	if p.left--; p.left < 0 {
		return fmt.Errorf("%w of files and folders in a layer", ErrLimit)
	}
	if p.omit[n.Path] {
		return errSkipFolder
	}
	kind := n.Stat.Mode & unix.S_IFMT
	if kind == unix.S_IFCHR && n.Stat.Rdev == 0 {
		if p.o.Whole {
			return nil
		}
		return p.whiteout(n)
	}
	if n.Path != "." && isWhiteout(n.base) {
		return p.leaveOut(n) // in a layer it would hide another one
	}
	var err error
	switch kind {
	case unix.S_IFDIR:
		err = p.folder(n)
	case unix.S_IFREG:
		err = p.regular(n)
	case unix.S_IFLNK:
		err = p.symlink(n)
	case unix.S_IFIFO:
		err = p.header(p.about(n, &n.Stat, tar.TypeFifo))
	default:
		return p.leaveOut(n)
	}
	if err != nil && !errors.Is(err, errSkipFolder) {
		return &EntryError{Entry: n.Path, Err: err}
	}
	return err
}

func (p *layerPacker) leaveOut(n *Node) error {
	if p.stats.Nodes++; len(p.stats.Names) < maxLeftOut {
		p.stats.Names = append(p.stats.Names, n.Path)
	}
	return errSkipFolder
}

// whiteout packs the mark of a removed file, which has nothing but a name.
func (p *layerPacker) whiteout(n *Node) error {
	return p.header(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Dir(n.Path), whiteoutPrefix+n.base),
		Format: tar.FormatPAX})
}

// about makes the header of a node.
func (p *layerPacker) about(n *Node, st *unix.Stat_t, kind byte) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: n.Path, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
}

func (p *layerPacker) header(h *tar.Header) error {
	if err := p.folderAbove(h.Name); err != nil {
		return err
	}
	p.stats.Entries++
	return p.tw.WriteHeader(h)
}

// folderAbove packs a folder that waited for something in it.
func (p *layerPacker) folderAbove(name string) error {
	h := p.pending
	if h == nil {
		return nil
	}
	p.pending = nil
	if !strings.HasPrefix(name, h.Name) {
		return nil
	}
	return p.header(h)
}

// open opens a node and looks at it once more.
func (p *layerPacker) open(n *Node, flags int, kind uint32) (*os.File, *unix.Stat_t, error) {
	fd, err := sys.OpenBeneath(n.parent, n.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), n.Path)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != kind || st.Ino != n.Stat.Ino) {
		err = ErrChanged
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, &st, nil
}

func (p *layerPacker) folder(n *Node) error {
	f, st, err := p.open(n, unix.O_DIRECTORY, unix.S_IFDIR)
	if err != nil {
		return err
	}
	defer f.Close()
	h := p.about(n, st, tar.TypeDir)
	h.Name += "/"
	opaque, err := p.attributes(f, h)
	if err != nil {
		return err
	}
	mode, known := p.o.Plain[n.Path]
	plain := known && !opaque && h.Mode == int64(mode) && h.Uid == 0 && h.Gid == 0 && len(h.PAXRecords) == 0
	switch {
	case p.implied[n.Path], plain && n.Path == ".":
	case plain:
		p.pending = h
	default:
		if err := p.header(h); err != nil {
			return err
		}
	}
	if !opaque || p.o.Whole {
		return nil
	}
	return p.header(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(n.Path, opaqueName), Format: tar.FormatPAX})
}

func (p *layerPacker) symlink(n *Node) error {
	target, err := n.Target()
	if err != nil {
		return err
	}
	h := p.about(n, &n.Stat, tar.TypeSymlink)
	h.Linkname = target
	return p.header(h)
}

func (p *layerPacker) regular(n *Node) error {
	f, st, err := p.open(n, 0, unix.S_IFREG)
	if err != nil {
		return err
	}
	defer f.Close()
	h := p.about(n, st, tar.TypeReg)
	// Of hard links, too: other extractors set what the link's own header says, and a file
	// loses its capabilities when its owner is set.
	if _, err := p.attributes(f, h); err != nil {
		return err
	}
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, ok := p.linked[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.header(h)
		}
		p.linked[id] = h.Name
	}
	p.stats.Bytes += st.Size
	h.Size = st.Size
	if st.Blocks*512 < st.Size {
		if parts, holes, err := dataOf(f, st.Size, p.buf); holes || err != nil {
			return errors.Join(err, p.sparse(f, h, parts))
		}
	}
	if err := p.header(h); err != nil {
		return err
	}
	return p.content(p.tw, f, part{0, st.Size})
}

// content copies a part of a file: so many bytes, whatever becomes of it meanwhile.
func (p *layerPacker) content(w io.Writer, f *os.File, of part) error {
	for off, end := of.off, of.off+of.n; off < end; {
		buf := p.buf[:min(end-off, int64(len(p.buf)))]
		n, err := f.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		clear(buf[n:]) // it shrank
		if _, err := w.Write(buf); err != nil {
			return err
		}
		off += int64(len(buf))
	}
	return nil
}

// attributes adds the extended attributes that a layer may bring, and takes the owner
// and the mark of an opaque folder out of them.
func (p *layerPacker) attributes(f *os.File, h *tar.Header) (opaque bool, err error) {
	fd := int(f.Fd())
	n, err := unix.Flistxattr(fd, p.list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list its attributes: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(p.list[:n]), "\x00"), "\x00") {
		ours := name == opaqueXattr || p.o.SingleUID && name == OwnerXattr
		if !ours && !packable(name) {
			if !strings.HasPrefix(name, "user.overlay.") && !strings.HasPrefix(name, "user.hutch.") {
				p.stats.Xattrs++
			}
			continue
		}
		k, err := unix.Fgetxattr(fd, name, p.value)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("read its attribute %q: %w", name, err)
		}
		switch value := string(p.value[:k]); {
		case name == opaqueXattr:
			opaque = value == "y" && h.Typeflag == tar.TypeDir
		case ours:
			takeOwner(h, value)
		case value == "": // in PAX it would mean that there is none
			p.stats.Xattrs++
		default:
			if h.PAXRecords == nil {
				h.PAXRecords = make(map[string]string)
			}
			h.PAXRecords[paxXattr+name] = value
		}
	}
	return opaque, nil
}

// packable says whether Unpack would set an attribute, and a PAX record can name it.
func packable(name string) bool {
	switch {
	case name == capabilityXattr:
		return true
	case !strings.HasPrefix(name, "user."), strings.HasPrefix(name, "user.overlay."),
		strings.HasPrefix(name, "user.hutch."):
		return false
	}
	return !strings.ContainsRune(name, '=')
}

// takeOwner reads an OwnerXattr, which a sandbox may have written: what is none is ignored.
func takeOwner(h *tar.Header, value string) {
	if uid, gid, ok := owners.Parse([]byte(value)); ok {
		h.Uid, h.Gid = int(uid), int(gid)
	}
}
