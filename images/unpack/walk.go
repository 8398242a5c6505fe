package unpack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Node is a file of a layer, met by Walk.
type Node struct {
	Path   string // relative to the layer's folder; "." is that
	Stat   unix.Stat_t
	parent int // fd of its folder
	base   string
}

// errSkipFolder is what a visit of Walk returns to leave out what is in a folder.
var errSkipFolder = errors.New("skip the folder")

// Walk visits every node below root, folders before what is in them and names in
// order, so that paths are visited in the order of their components. It follows no
// symlink and holds one folder open however deep the tree is. A visit that returns
// errSkipFolder leaves out what is in the folder.
func Walk(ctx context.Context, root *os.File, visit func(n *Node) error) error {
	return walk(ctx, root, nil, visit)
}

// memory is what is known of a tree by who has made it, each answer with whether there is one.
type memory interface {
	// known fills in what a stat of a file with that name in the folder of that inode number would say.
	known(folder, ino uint64, base string, st *unix.Stat_t) bool
	// list returns what getdents(2) of that folder would say, without "." and "..".
	list(folder uint64) ([]byte, bool)
}

// walk is Walk that does not ask the file system about what mem knows, if it is not nil.
func walk(ctx context.Context, root *os.File, mem memory, visit func(n *Node) error) error {
	// Only its fd is used below: a collection would close the folder, and its number could
	// become another file's.
	defer runtime.KeepAlive(root)
	n := &Node{Path: ".", parent: int(root.Fd()), base: "."}
	if err := unix.Fstat(n.parent, &n.Stat); err != nil {
		return fmt.Errorf("stat the layer's folder: %w", err)
	}
	if err := visit(n); err != nil {
		return err
	}
	w := &walker{ctx: ctx, root: int(root.Fd()), mem: mem, dir: -1, buf: make([]byte, listBytes)}
	defer func() { closeFD(w.dir) }()
	return w.below(n, visit)
}

type walker struct {
	ctx  context.Context
	root int
	mem  memory
	// The open folder, and its path.
	dir  int
	open string
	// stack are the nodes that are still to be visited; those of the folder met last are on top.
	stack []dirent
	buf   []byte
}

// dirent is a node as its folder lists it.
type dirent struct {
	in   *listed
	base string
	ino  uint64
	kind byte
}

// listed is a folder whose nodes were put on the stack.
type listed struct {
	path  string
	below string // what the paths of its nodes begin with
	ino   uint64
}

// below visits what is in a folder, and goes down where that is met.
func (w *walker) below(top *Node, visit func(n *Node) error) error {
	if err := w.list(top); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		e := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		if err := w.enter(e.in.path); err != nil {
			return err
		}
		n := &Node{Path: e.in.below + e.base, parent: w.dir, base: e.base}
		if w.mem == nil || e.kind != unix.DT_REG || !w.mem.known(e.in.ino, e.ino, e.base, &n.Stat) {
			if err := unix.Fstatat(w.dir, e.base, &n.Stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return fmt.Errorf("stat %q: %w", n.Path, err)
			}
		}
		err := visit(n)
		if errors.Is(err, errSkipFolder) {
			continue
		}
		if err != nil {
			return err
		}
		if n.Stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := w.list(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter opens a folder, unless it is open.
func (w *walker) enter(dir string) error {
	if w.dir >= 0 && w.open == dir {
		return nil
	}
	fd, err := sys.OpenBeneath(w.root, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open folder %q: %w", dir, err)
	}
	closeFD(w.dir)
	w.dir, w.open = fd, dir
	return nil
}

// listBytes is the unit of reading a folder.
const listBytes = 64 << 10

// list puts the nodes of a folder on the stack, the last first, and leaves it open.
func (w *walker) list(n *Node) error {
	if err := w.enter(n.Path); err != nil {
		return err
	}
	in, first := &listed{path: n.Path, below: n.Path + "/", ino: n.Stat.Ino}, len(w.stack)
	if n.Path == "." {
		in.below = ""
	}
	var entries []byte
	known := false
	if w.mem != nil {
		entries, known = w.mem.list(n.Stat.Ino)
		w.stack = appendEntries(w.stack, in, entries)
	}
	for !known {
		size, err := unix.Getdents(w.dir, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read folder %q: %w", n.Path, err)
		}
		if size <= 0 {
			break
		}
		w.stack = appendEntries(w.stack, in, w.buf[:size])
	}
	slices.SortFunc(w.stack[first:], func(a, b dirent) int { return strings.Compare(b.base, a.base) })
	return nil
}

// direntHeader is the size of a struct linux_dirent64 without its name.
const direntHeader = 19

// appendEntries reads struct linux_dirent64 (getdents(2)): inode number (8 bytes), offset (8),
// length of the whole (2), type (1), name with a NUL.
func appendEntries(all []dirent, in *listed, b []byte) []dirent {
	for len(b) > direntHeader {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= direntHeader || size > len(b) {
			break
		}
		name := b[direntHeader:size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if base := string(name); base != "." && base != ".." {
			all = append(all, dirent{in: in, base: base, ino: binary.NativeEndian.Uint64(b), kind: b[18]})
		}
		b = b[size:]
	}
	return all
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
