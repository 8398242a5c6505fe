package unpack

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
)

// place is where an entry goes: the open folder it goes into and its last
// component there. Nodes are made only by *at calls on that pair, which never
// follow a symlink in the last component.
type place struct {
	parent int    // O_PATH fd, the cache's
	folder uint64 // its inode number
	fresh  bool   // the layer has not had the name here
	key    uint64 // of folder and base, once it is settled
	base   string // one component, not "." or ".."
	name   string // the whole name, for records
}

// maxPath is PATH_MAX without the final NUL. Deeper files could be made
// through fds, but no program could name them.
const maxPath = unix.PathMax - 1

// cleanName turns an entry's name into components joined by single slashes;
// "" is the root. Absolute names mean the same as relative ones, as in every
// unpacker. ".." is refused instead of resolved: no honest layer has it, and
// its meaning depends on whether symlinks are followed first.
func (u *unpacker) cleanName(name string) (string, error) {
	if strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("%w: NUL in the name", ErrUnsafe)
	}
	parts := make([]string, 0, 16)
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", fmt.Errorf("%w: the name has a component \"..\"", ErrUnsafe)
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > u.limits.MaxDepth {
		return "", fmt.Errorf("%w of %d path components", ErrLimit, u.limits.MaxDepth)
	}
	for _, p := range parts[:max(0, len(parts)-1)] {
		if isWhiteout(p) && !isMeta(p) {
			return "", fmt.Errorf("%w: a folder cannot be named %q", ErrUnsafe, p)
		}
	}
	clean := strings.Join(parts, "/")
	if len(clean) > maxPath {
		return "", fmt.Errorf("%w of %d bytes in a path", ErrLimit, maxPath)
	}
	return clean, nil
}

// splitName splits a clean name into its folder ("" is the root) and its last
// component.
func splitName(name string) (dir, base string) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

func joinName(dir, base string) string {
	if dir == "" {
		return base
	}
	return dir + "/" + base
}

// errNoFolder marks a parent that the layer has as something else.
var errNoFolder = errors.New("not a folder")

// parent opens the folder dir of the layer, making what is missing of it. The
// fd stays the cache's and is good until the next call.
//
// Symlinks among the parents are followed as if the layer were the root file
// system (RESOLVE_IN_ROOT): tar streams made by hand say lib/x where the same
// layer has lib -> usr/lib, and they mean usr/lib/x. A link of another layer
// is never seen, because every layer has a folder of its own.
func (u *unpacker) parent(dir string) (int, error) {
	if fd, ok := u.parents.get(dir); ok {
		return fd, nil
	}
	fd, err := sys.OpenInRoot(u.root, orDot(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case err == nil:
		return fd, u.keep(dir, fd)
	case dir == "":
		return -1, fmt.Errorf("open the layer's folder: %w", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return u.imply(dir)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return -1, fmt.Errorf("%w: open parent %q: %w", ErrUnsafe, dir, err)
	}
	return -1, fmt.Errorf("open parent %q: %w", dir, err)
}

// imply makes the folder dir, which an entry below it implies.
func (u *unpacker) imply(dir string) (int, error) {
	if err := errors.Join(u.count(), u.meter()); err != nil {
		return -1, err
	}
	if u.implied += len(dir); u.implied > MaxImplied {
		return -1, fmt.Errorf("%w of %d bytes in the names of folders without an entry", ErrLimit, MaxImplied)
	}
	if err := u.writers.wait(); err != nil { // a file may have the name
		return -1, err
	}
	up, base := splitName(dir)
	parent, err := u.parent(up)
	if err != nil {
		return -1, err
	}
	at := place{parent: parent, folder: u.parents.latest(), base: base, name: dir}
	if err := u.writers.settle(&at); err != nil {
		return -1, err
	}
	if kind := u.kindAt(at); kind != absent && kind != whited {
		// A file, or a symlink that leads nowhere in this layer.
		return -1, fmt.Errorf("%w: its parent %q is %w", ErrUnsafe, dir, errNoFolder)
	}
	fd, err := u.makeDir(at)
	if err != nil {
		return -1, err
	}
	return fd, u.keep(dir, fd)
}

// keep gives an open folder to the cache, which owns it also when that fails. One that has
// to leave it stays open while files may be written in it.
func (u *unpacker) keep(dir string, fd int) error {
	u.parents.put(dir, fd)
	if !u.writers.flying {
		u.parents.closeRetired()
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat folder %q: %w", dir, err)
	}
	u.parents.entries[len(u.parents.entries)-1].ino = st.Ino
	return nil
}

// kind is what a place holds.
type kind int

const (
	absent kind = iota
	whited      // a whiteout of this layer
	folder
	other
)

func (u *unpacker) kindAt(at place) kind {
	var st unix.Stat_t
	if err := unix.Fstatat(at.parent, at.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return absent
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return folder
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0:
		return whited // devices of the layer are never made
	}
	return other
}

// replace removes what is in the way of a new node.
func (u *unpacker) replace(at place) error {
	if err := u.writers.wait(); err != nil {
		return err
	}
	u.stale = true
	u.names.forget(at.folder)
	return rmtree.At(at.parent, at.base)
}

// reopen opens the folder named name for reading, for calls that an O_PATH fd
// does not allow. The caller owns the fd.
func (u *unpacker) reopen(name string) (int, error) {
	fd, err := sys.OpenInRoot(u.root, orDot(name), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, fmt.Errorf("open folder %q: %w", name, err)
	}
	return fd, nil
}

func orDot(name string) string {
	if name == "" {
		return "."
	}
	return name
}

// dirCache keeps the folders used last, because neighbours in a tar stream
// have the same parents. A name stays good while nothing is removed: making
// nodes never changes what an existing path leads to.
type dirCache struct {
	entries []cachedDir // most recently used last
	retired []int       // fds that left, still open
}

type cachedDir struct {
	name string
	fd   int
	ino  uint64
}

const dirCacheSize = 16

func (c *dirCache) get(name string) (int, bool) {
	for i := len(c.entries) - 1; i >= 0; i-- {
		if e := c.entries[i]; e.name == name {
			copy(c.entries[i:], c.entries[i+1:])
			c.entries[len(c.entries)-1] = e
			return e.fd, true
		}
	}
	return -1, false
}

// put gives the fd to the cache.
func (c *dirCache) put(name string, fd int) {
	if len(c.entries) == dirCacheSize {
		c.retired = append(c.retired, c.entries[0].fd)
		c.entries = c.entries[:copy(c.entries, c.entries[1:])]
	}
	c.entries = append(c.entries, cachedDir{name: name, fd: fd})
}

// latest is the inode number of the folder that was got or put last.
func (c *dirCache) latest() uint64 { return c.entries[len(c.entries)-1].ino }

func (c *dirCache) closeRetired() {
	for _, fd := range c.retired {
		_ = unix.Close(fd)
	}
	c.retired = c.retired[:0]
}

// flush closes all; no batch may be unwritten.
func (c *dirCache) flush() {
	c.closeRetired()
	for _, e := range c.entries {
		_ = unix.Close(e.fd)
	}
	c.entries = c.entries[:0]
}
