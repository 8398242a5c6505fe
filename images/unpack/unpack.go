package unpack

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/owners"
)

// Errors that Unpack wraps in an *EntryError. Anything else that goes wrong is
// the errno of a system call or an error of the reader.
var (
	// ErrUnsafe marks an entry that no honest layer has.
	ErrUnsafe = errors.New("refused")
	// ErrLimit marks a layer that grows over one of the Limits.
	ErrLimit = errors.New("over the limit")
	// ErrUnmapped marks an owner that has no id in this user namespace.
	ErrUnmapped = errors.New("owner is not mapped in this user namespace")
	// ErrDamaged marks a stream that ends too early or is no tar stream.
	ErrDamaged = errors.New("damaged")
	// ErrAttributes marks a file system that cannot keep the user.* attributes
	// that overlayfs needs.
	ErrAttributes = errors.New("the file system keeps no user.* extended attributes")
)

// EntryError says which entry of the layer could not be unpacked.
type EntryError struct {
	Entry string // name as in the tar stream
	Err   error
}

func (e *EntryError) Error() string { return fmt.Sprintf("entry %q: %v", e.Entry, e.Err) }

func (e *EntryError) Unwrap() error { return e.Err }

// Options of Unpack.
type Options struct {
	Limits Limits // zero fields mean DefaultLimits
	// SingleUID leaves every file to uid 0 and keeps other owners, as
	// "uid:gid", in the attribute OwnerXattr of files and folders.
	SingleUID bool
	// Manifest, unless nil, gets the manifest of what was made.
	Manifest io.Writer `json:"-"`
	// Attributes, unless nil, gets what of it is about extended attributes.
	Attributes io.Writer `json:"-"`

	// cpu, unless 0, is the CPU time that this process may take, which does nothing else, beside perByte for each byte,
	// by default cpuPerByte.
	cpu, perByte time.Duration
}

// OwnerXattr holds the owner a file should have where there is only one id.
const OwnerXattr = owners.Xattr

// Stats tell what a layer made.
type Stats struct {
	Entries int64 // nodes made, implied folders included
	Bytes   int64 // sizes of the regular files, hard links counted once
	// Devices and Xattrs were left out: nodes that a sandbox may not have, and
	// attributes that this file system or user namespace cannot keep.
	Devices, Xattrs int
	// OverlayXattrs were left out because they would steer overlayfs.
	OverlayXattrs int
	// Implied are the folders that have no entry of their own. They have mode
	// 0755 and owner 0:0, although a lower layer may know better.
	Implied []string
	// Hollow are those of Implied in which the layer has nothing but whiteouts: where no lower layer
	// has the folder, there is none.
	Hollow []string
	// Links are to files of lower layers, and not made.
	Links []LowerLink
	// RootOpaque says that the layer hides every lower layer. overlayfs ignores
	// the mark on the root of a layer, so the lower layers must be left out.
	RootOpaque bool
}

// Unpack reads one layer from r, an uncompressed tar stream, to its end and
// makes its files below root, an open empty folder that only the caller can
// reach. Whiteouts become what overlayfs wants in a lower folder that is
// mounted with userxattr.
//
// Nothing outside root is changed whatever r holds. When Unpack fails the
// folder holds rubbish, to be removed by rmtree.
func Unpack(root *os.File, r io.Reader, opts Options) (Stats, error) {
	limits := opts.Limits.WithDefaults()
	limited := &limitReader{r: r, left: limits.MaxBytes, max: limits.MaxBytes}
	in := bufio.NewReaderSize(limited, copyBuffer)
	u := &unpacker{
		root: int(root.Fd()),
		tr:   &tarStream{r: in},
		in:   limited,
		cpu:  opts.cpu, perByte: cmp.Or(opts.perByte, cpuPerByte), began: usedCPU(),
		limits: limits,
		single: opts.SingleUID,
		dirs:   make(map[uint64]*dir),
		buf:    make([]byte, copyBuffer),
	}
	u.writers = newWriters(u)
	defer u.writers.close()
	if opts.Manifest != nil {
		u.records, u.names = newRecords(), newNames()
		u.extended = make(map[uint64]bool)
	}
	defer u.parents.flush()
	// u has its fd only: without this a collection would close the folder.
	defer runtime.KeepAlive(root)
	if err := u.noteRoot(); err != nil {
		return u.stats, err
	}
	err := u.entries()
	if first := u.writers.wait(); first != nil { // of an entry before
		err = first
	}
	if err != nil {
		return u.stats, err
	}
	if err := errors.Join(u.dropLinks(), u.finishLinks(), u.finishDirs()); err != nil {
		return u.stats, err
	}
	// What follows the end of the archive counts for the digest.
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, u.buf); err != nil {
		return u.stats, readError("read what follows the layer's tar stream", err)
	}
	if opts.Manifest != nil {
		return u.stats, writeManifest(context.Background(), opts.Manifest, opts.Attributes, root, u,
			func(n *Node) (uint32, error) { return u.records.sum(n.Stat.Ino), nil },
			func(n *Node) bool { return u.extended[n.Stat.Ino] })
	}
	return u.stats, nil
}

// copyBuffer is the unit of reading and writing file contents.
const copyBuffer = 128 << 10

type unpacker struct {
	root    int // fd, the caller's
	tr      *tarStream
	in      *limitReader  // what tr reads
	cpu     time.Duration // Options.cpu
	perByte time.Duration // Options.perByte
	began   time.Duration // usedCPU at the begin
	steps   int           // that meter has counted
	limits  Limits
	single  bool
	owns    bool // what this process makes belongs to 0:0
	parents dirCache
	stale   bool // something was removed: parents may name it
	writers *writers
	dirs    map[uint64]*dir // by inode number
	stats   Stats
	implied int  // bytes of the names of folders without an entry
	links   bool // the layer has files in linkFolder
	below   map[string]LowerLink
	buf     []byte
	// crc is the checksum of the file that is being written; records are of all files, nil
	// without a manifest.
	crc     uint32
	records *records
	names   *names // nil without a manifest
	// extended are the inode numbers of what got extended attributes, and perhaps of what
	// came after it; nil without a manifest.
	extended map[uint64]bool
}

// An extractor may take cpuBase of CPU time, and cpuPerByte for each byte of the tar stream, which is 30 times what a
// layer of tiny files takes: names that lead through many symbolic links cost the kernel thousands of steps each.
const (
	cpuBase    = 20 * time.Second
	cpuPerByte = 2 * time.Microsecond
	meterEvery = 64 // steps
)

// meter counts a step, of which none takes long by itself, and fails when all of them have taken too long.
func (u *unpacker) meter() error {
	if u.steps++; u.cpu == 0 || u.steps%meterEvery != 0 {
		return nil
	}
	if allowed := u.cpu + time.Duration(u.in.max-u.in.left)*u.perByte; usedCPU()-u.began > allowed {
		return fmt.Errorf("%w of %v of CPU time for a layer of this size", ErrLimit, allowed.Round(time.Second))
	}
	return nil
}

// usedCPU is what this process has taken.
func usedCPU() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // fails only for a bad address
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (u *unpacker) entries() error {
	for {
		h, err := u.tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return readError("read the layer's tar stream", err)
		}
		if err := u.meter(); err != nil {
			return &EntryError{Entry: h.Name, Err: err}
		}
		if err := u.entry(h); err != nil {
			return &EntryError{Entry: h.Name, Err: err}
		}
	}
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if u.stale || len(u.parents.retired) > retiredFolders {
		if err := u.writers.wait(); err != nil {
			return err
		}
	}
	if u.stale {
		u.parents.flush()
		u.stale = false
	}
	if err := u.count(); err != nil {
		return err
	}
	name, err := u.cleanName(h.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return u.rootEntry(h)
	}
	if u.leftover(name) {
		return nil
	}
	parentName, base := splitName(name)
	if isWhiteout(base) {
		return u.whiteout(parentName, base)
	}
	if h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
		u.stats.Devices++
		return nil
	}
	parent, err := u.parent(parentName)
	if err != nil {
		return err
	}
	at := place{parent: parent, folder: u.parents.latest(), base: base, name: name}
	if err := u.writers.settle(&at); err != nil {
		return err
	}
	u.fill(at.folder)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.regular(at, h)
	case tar.TypeDir:
		return u.directory(at, h)
	case tar.TypeSymlink:
		return u.symlink(at, h)
	case tar.TypeLink:
		return u.hardLink(at, h)
	case tar.TypeFifo:
		return u.fifo(at, h)
	}
	return fmt.Errorf("%w: unknown type %q", ErrUnsafe, h.Typeflag)
}

// count admits one more node.
func (u *unpacker) count() error {
	u.stats.Entries++
	if u.stats.Entries > u.limits.MaxEntries {
		return fmt.Errorf("%w of %d entries", ErrLimit, u.limits.MaxEntries)
	}
	return nil
}

// rootEntry handles "./", the folder itself.
func (u *unpacker) rootEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: the root of a layer must be a folder, not type %q", ErrUnsafe, h.Typeflag)
	}
	fd, err := u.reopen("")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.noteDir(fd, "", h)
}

// readError is an error of the stream: its own limits, or damage.
func readError(what string, err error) error {
	if errors.Is(err, ErrLimit) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, what, err)
}

// limitReader fails with ErrLimit when more than max bytes come.
type limitReader struct {
	r         io.Reader
	left, max int64
}

func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return 0, fmt.Errorf("%w of %d unpacked bytes for a layer of this compressed size", ErrLimit, l.max)
	}
	return n, err
}
