package treecopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
)

// Versions of a tree: Look says what it is now, and by the version before which files are still what they were; Fill
// copies the others to a folder of objects, which versions share; Rebuild makes a tree of a version. The tree is as
// hostile as Tree's.

// MaxNodes bounds the names of a version, and MaxText its names, targets of links and attributes of folders, in bytes:
// they are in memory.
const (
	MaxNodes = 150_000
	MaxText  = 32 << 20
)

// ErrTooMany says that a tree has more.
var ErrTooMany = fmt.Errorf("there are more than %d files and folders, or more than %d bytes of names", MaxNodes,
	MaxText)

// young is how old the last change of a file must be for a later one to have another time: kernels count ctime in
// ticks, of 10 ms at most.
const young = 20 * time.Millisecond

// Node is what one name of a tree was.
type Node struct {
	Name             string
	Mode, UID, GID   uint32
	Size             int64
	Atim, Mtim, Ctim unix.Timespec
	Ino              uint64
	// Young says that the last change was so short ago that a later one may have the same time.
	Young  bool
	Links  bool    // of a file that had more than one name
	Target string  // of a symbolic link
	Attrs  []Attr  // of a folder; a file's are its object's
	Object uint64  // of a regular file: where its copy is
	Nodes  []*Node // of a folder, by name

	fresh bool // made by the last Look
}

// Attr is an extended attribute.
type Attr struct {
	Name  string
	Value []byte
}

// Objects numbers copies of files, each in a file of that name in Dir, which is nobody else's.
type Objects struct {
	Dir  *os.File
	Next uint64
	Made map[uint64]int64 // by Fill: bytes as allocated
}

// ObjectName is the name of an object's file.
func ObjectName(n uint64) string { return fmt.Sprintf("%x", n) }

// Look describes src. was is what it was before, nil for never; what is still the same is the same *Node, which of the
// top folder too says that nothing has changed. changing says of a file that it may have been changed without a new
// time. On a tmpfs, which notes no time of what is written to a mapping, content is compared with that in objects, too.
// need is what Fill would copy.
func Look(ctx context.Context, src *os.File, was *Node, objects *os.File,
	changing func(name string, ino uint64) bool) (now *Node, need diskuse.Usage, err error) {
	l := &looker{ctx: ctx, was: was, changing: changing, counted: map[uint64]bool{},
		since: unix.NsecToTimespec(time.Now().Add(-young).UnixNano())}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return nil, need, err
	}
	l.dev = st.Dev
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(src.Fd()), &on); err != nil {
		return nil, need, err
	}
	if on.Type == unix.TMPFS_MAGIC {
		l.objects = objects
	}
	now, err = l.folder(src, "", &st, was, 1)
	if err != nil {
		return nil, l.need, fmt.Errorf("look at %s: %w", path.Join(l.path...), err)
	}
	return now, l.need, nil
}

type looker struct {
	ctx      context.Context
	dev      uint64
	since    unix.Timespec
	changing func(name string, ino uint64) bool
	need     diskuse.Usage
	counted  map[uint64]bool // inodes with several names that are in need
	was      *Node           // the tree before
	objects  *os.File        // nil where times tell enough
	buf      [2][]byte
	files    map[uint64]*Node // of it, by inode; nil until somebody asks
	path     []string
	nodes    int
	text     int
}

func later(a, b unix.Timespec) bool { return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec }

// take counts what a node holds.
func (l *looker) take(text int) error {
	l.nodes++
	if l.text += text; l.nodes > MaxNodes || l.text > MaxText {
		return ErrTooMany
	}
	if l.nodes%batch == 0 {
		return context.Cause(l.ctx)
	}
	return nil
}

// node is what st says of a name.
func (l *looker) node(name string, st *unix.Stat_t) *Node {
	return &Node{
		Name: name, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Size: st.Size, Atim: st.Atim, Mtim: st.Mtim, Ctim: st.Ctim,
		Ino:   st.Ino,
		Young: later(st.Ctim, l.since), Links: st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR, fresh: true,
	}
}

// still says that nothing has happened to what n was. The time of the last change is the kernel's: nobody in a sandbox
// sets it.
func (n *Node) still(st *unix.Stat_t) bool {
	return n != nil && n.Ino == st.Ino && n.Ctim == st.Ctim && n.Mtim == st.Mtim && n.Mode == st.Mode &&
		(n.Size == st.Size || st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

func (l *looker) folder(dir *os.File, name string, st *unix.Stat_t, was *Node, depth int) (*Node, error) {
	if depth > MaxDepth {
		return nil, ErrTooDeep
	}
	if was != nil && was.Mode&unix.S_IFMT != unix.S_IFDIR {
		was = nil
	}
	still := was.still(st)
	names, err := l.names(dir, was, still && !was.Young)
	if err != nil {
		return nil, err
	}
	n := l.node(name, st)
	n.Nodes = make([]*Node, 0, len(names))
	same := still && len(names) == len(was.Nodes)
	at := 0
	for _, name := range names {
		var before *Node
		if was != nil {
			for at < len(was.Nodes) && was.Nodes[at].Name < name {
				at++
			}
			if at < len(was.Nodes) && was.Nodes[at].Name == name {
				before = was.Nodes[at]
			}
		}
		l.path = append(l.path, name)
		entry, err := l.entry(dir, name, before, depth)
		if err != nil {
			return nil, err
		}
		l.path = l.path[:len(l.path)-1]
		same = same && entry == before
		n.Nodes = append(n.Nodes, entry)
	}
	if same {
		was.Young = n.Young
		return was, l.take(len(name))
	}
	if n.Attrs, err = attributesOf(int(dir.Fd())); err != nil {
		return nil, err
	}
	text := len(name)
	for _, a := range n.Attrs {
		text += len(a.Name) + len(a.Value)
	}
	return n, l.take(text)
}

// names are those in a folder, in order: those of before where that has not changed.
func (l *looker) names(dir *os.File, was *Node, same bool) ([]string, error) {
	var names []string
	if same {
		for _, n := range was.Nodes {
			names = append(names, n.Name)
		}
		return names, nil
	}
	for {
		some, err := dir.Readdirnames(batch)
		if names = append(names, some...); len(names) > MaxNodes {
			return nil, ErrTooMany
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err == nil {
			err = context.Cause(l.ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *looker) entry(dir *os.File, name string, was *Node, depth int) (*Node, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if st.Dev != l.dev {
		return nil, fmt.Errorf("%w: something is mounted there", ErrChanged)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		sub, err := open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, &st)
		if err != nil {
			return nil, err
		}
		defer sub.Close()
		return l.folder(sub, name, &st, was, depth+1)
	}
	regular := st.Mode&unix.S_IFMT == unix.S_IFREG
	changing := regular && l.changing != nil && l.changing(name, st.Ino)
	if was.still(&st) && !changing && (!regular || !was.Young && was.Object != 0 && l.sameContent(dir, was, &st)) {
		return was, l.take(len(name) + len(was.Target))
	}
	n := l.node(name, &st)
	n.Young = n.Young || changing
	// a folder above it was moved
	if old := l.elsewhere(st.Ino); regular && !changing && old.still(&st) && !old.Young &&
		l.sameContent(dir, &Node{Name: name, Object: old.Object}, &st) {
		n.Object, n.fresh = old.Object, false
		return n, l.take(len(name))
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if !l.counted[st.Ino] {
			l.need = l.need.Add(diskuse.Usage{Bytes: st.Blocks * 512, Inodes: 1})
			l.counted[st.Ino] = n.Links
		}
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(int(dir.Fd()), name, buf)
		if err != nil {
			return nil, err
		}
		n.Target = string(buf[:size])
	case unix.S_IFCHR, unix.S_IFBLK:
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 { // no sandbox can have made one
			return nil, fmt.Errorf("%w: a device", ErrChanged)
		}
	}
	return n, l.take(len(name) + len(n.Target))
}

// elsewhere is the file that an inode was, whatever its name; nil for none.
func (l *looker) elsewhere(ino uint64) *Node {
	if l.files == nil {
		l.files = map[uint64]*Node{}
		l.was.index(l.files)
	}
	return l.files[ino]
}

func (n *Node) index(files map[uint64]*Node) {
	if n == nil {
		return
	}
	if n.Object != 0 {
		files[n.Ino] = n
	}
	for _, sub := range n.Nodes {
		sub.index(files)
	}
}

// Fill copies the files of now that have no object yet. src must have stood still since Look; where it has not, a file
// is what it is by now, or it fails.
func Fill(ctx context.Context, src *os.File, now *Node, to *Objects) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	f := &filler{copier: copier{ctx: ctx}, to: to, dev: st.Dev, linked: map[uint64]uint64{}}
	if err := f.folder(src, now); err != nil {
		return fmt.Errorf("copy %s: %w", path.Join(f.path...), err)
	}
	return nil
}

type filler struct {
	copier
	to     *Objects
	dev    uint64
	linked map[uint64]uint64 // objects of files with several names, by inode
}

func (f *filler) folder(dir *os.File, n *Node) error {
	if !n.fresh {
		return nil
	}
	n.fresh = false
	for _, sub := range n.Nodes {
		kind := sub.Mode & unix.S_IFMT
		if !sub.fresh || kind != unix.S_IFDIR && kind != unix.S_IFREG {
			sub.fresh = false
			continue
		}
		f.path = append(f.path, sub.Name)
		st := unix.Stat_t{Ino: sub.Ino, Dev: f.dev, Mode: sub.Mode}
		var err error
		if kind == unix.S_IFREG {
			err = f.object(dir, sub, &st)
		} else {
			err = f.below(dir, sub, &st)
		}
		if err != nil {
			return err
		}
		f.path = f.path[:len(f.path)-1]
	}
	return nil
}

func (f *filler) below(dir *os.File, n *Node, st *unix.Stat_t) error {
	sub, err := open(dir, n.Name, unix.O_RDONLY|unix.O_DIRECTORY, st)
	if err != nil {
		return err
	}
	defer sub.Close()
	return f.folder(sub, n)
}

// object copies one file.
func (f *filler) object(dir *os.File, n *Node, st *unix.Stat_t) error {
	n.fresh = false
	if err := context.Cause(f.ctx); err != nil {
		return err
	}
	if known, ok := f.linked[n.Ino]; ok && n.Links {
		n.Object = known
		return nil
	}
	from, err := open(dir, n.Name, unix.O_RDONLY, st)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := unix.Fstat(int(from.Fd()), st); err != nil {
		return err
	}
	number := f.to.Next
	fd, err := unix.Openat(int(f.to.Dir.Fd()), ObjectName(number),
		unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, st.Mode&0o777)
	if err != nil {
		return err
	}
	to := os.NewFile(uintptr(fd), ObjectName(number))
	defer to.Close()
	f.to.Next++
	f.to.Made[number] = 0
	if err := f.content(int(from.Fd()), fd, st); err != nil {
		return err
	}
	if err := finish(int(from.Fd()), fd, st); err != nil {
		return err
	}
	if err := unix.Fstat(fd, st); err != nil {
		return err
	}
	f.to.Made[number] = st.Blocks * 512
	if n.Object = number; n.Links {
		f.linked[n.Ino] = number
	}
	return nil
}

// Each calls use with the objects of a version: one that has several names as often.
func (n *Node) Each(use func(object uint64)) {
	if n.Object != 0 {
		use(n.Object)
	}
	for _, sub := range n.Nodes {
		sub.Each(use)
	}
}
