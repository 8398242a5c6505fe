package changes

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// Difference is one name that two overlays show differently.
type Difference struct {
	Change
	Was string // the type before: it has become another, or has gone

	old, new int // folders that have it, of those that were compared; -1 for none
}

// The kinds that only differences have. In a file system of its own a file can become a link in one step, and mode and
// owner are worth a line.
const (
	Retyped Kind = "type" // a file has become a folder, a link a file, and so on
	Moded   Kind = "mode" // permissions or owner, and nothing else
)

// ErrEnough is what a caller of Between returns to end it.
var ErrEnough = errors.New("enough")

// Overlays are two overlays with the same lower folders. Layers are hostile as upper folders are.
type Overlays struct {
	Old, New *os.File   // upper folders
	Lower    []*os.File // top-most first
}

// folders are all of them, by their numbers in Difference.
func (o *Overlays) folders() []*os.File { return append([]*os.File{o.Old, o.New}, o.Lower...) }

// Between compares what two overlays show, and calls each with what differs, in the order of a walk: a folder before
// what is in it. It looks only where one of the upper folders has something. Nothing may change meanwhile but the
// lowest folder.
func (o *Overlays) Between(ctx context.Context, each func(*Difference) error) error {
	b := &between{finder: finder{ctx: ctx}, each: each}
	old, now := []int{0}, []int{1}
	for i, f := range o.folders() {
		b.dirs = append(b.dirs, int(f.Fd()))
		if i > 1 {
			old, now = append(old, i), append(now, i)
		}
	}
	old, err := b.seen(old, ".")
	if err == nil {
		now, err = b.seen(now, ".")
	}
	if err == nil {
		err = b.folder(".", old, now)
	}
	if errors.Is(err, ErrEnough) {
		return nil
	}
	return err
}

type between struct {
	finder // for what it knows of files
	dirs   []int
	each   func(*Difference) error
}

// shown is a name as an overlay shows it.
type shown struct {
	st     *unix.Statx_t
	at     int   // the folder that has it
	merged []int // of a folder: all that show through, top-most first
}

// look finds a name where its folder is merged of these.
func (b *between) look(merged []int, p string) (*shown, error) {
	var s *shown
	for _, at := range merged {
		st, err := stat(b.dirs[at], p)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		folder := kind(st) == unix.S_IFDIR
		if isWhiteout(st) || s != nil && !folder {
			break
		}
		if s == nil {
			s = &shown{st: st, at: at}
		}
		if !folder {
			break
		}
		s.merged = append(s.merged, at)
		opaque, err := isOpaque(b.dirs[at], p)
		if err != nil {
			return nil, err
		}
		if opaque {
			break
		}
	}
	return s, nil
}

// seen are the folders that show through one that is there for certain.
func (b *between) seen(merged []int, p string) ([]int, error) {
	s, err := b.look(merged, p)
	if err != nil || s == nil {
		return nil, err
	}
	return s.merged, nil
}

// folder compares what is in a folder that is merged of these; none means that there is none.
func (b *between) folder(dir string, old, now []int) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	lower := func(merged []int) []int {
		return slices.DeleteFunc(slices.Clone(merged), func(i int) bool { return i < 2 })
	}
	from := slices.Concat(old, now)
	if slices.Equal(lower(old), lower(now)) { // what neither upper folder has is the same
		from = slices.DeleteFunc(from, func(i int) bool { return i >= 2 })
	}
	slices.Sort(from)
	var names []string
	for _, i := range slices.Compact(from) {
		more, err := list(b.dirs[i], dir)
		if err != nil {
			return err
		}
		names = append(names, more...)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		p := path.Join(dir, name)
		was, err := b.look(old, p)
		if err != nil {
			return err
		}
		is, err := b.look(now, p)
		if err != nil {
			return err
		}
		if err := b.name(p, was, is); err != nil {
			return err
		}
	}
	return nil
}

// name compares one name and, of a folder, what is in it.
func (b *between) name(p string, was, is *shown) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	var merged [2][]int
	d := &Difference{Change: Change{Path: p}, old: -1, new: -1}
	if was != nil {
		d.old, merged[0], d.Was = was.at, was.merged, letter(was.st)
	}
	if is != nil {
		d.new, merged[1], d.Type, d.Mode = is.at, is.merged, letter(is.st), permissions(is.st)
		if kind(is.st) == unix.S_IFREG {
			d.Size = int64(is.st.Size)
		}
	}
	switch {
	case was == nil && is == nil:
		return nil
	case was == nil:
		d.Kind = Added
	case is == nil:
		d.Kind, d.Type, d.Was = Deleted, d.Was, ""
	case kind(was.st) != kind(is.st):
		d.Kind = Retyped
	default:
		d.Was = ""
		if was.at == is.at { // the very same
			break
		}
		same, err := b.alike(p, was, is)
		if err != nil {
			return err
		}
		sameMode := was.st.Mode == is.st.Mode && was.st.Uid == is.st.Uid && was.st.Gid == is.st.Gid
		switch {
		case !same:
			d.Kind = Modified
		case !sameMode:
			d.Kind = Moded
		}
		if was.st.Mode&0o777 == is.st.Mode&0o777 && d.Kind == Modified {
			d.Mode = ""
		}
	}
	if d.Kind != "" {
		if err := b.each(d); err != nil {
			return err
		}
	}
	if merged[0] == nil && merged[1] == nil {
		return nil
	}
	return b.folder(p, merged[0], merged[1])
}

// alike compares what is in two names of one kind; folders are always.
func (b *between) alike(p string, was, is *shown) (bool, error) {
	switch kind(is.st) {
	case unix.S_IFREG:
		if was.st.Size != is.st.Size {
			return false, nil
		}
		return b.sameContent(b.dirs[was.at], p, b.dirs[is.at], p)
	case unix.S_IFLNK:
		old, err := readlink(b.dirs[was.at], p)
		if err != nil {
			return false, err
		}
		now, err := readlink(b.dirs[is.at], p)
		return old == now, err
	case unix.S_IFCHR, unix.S_IFBLK:
		return was.st.Rdev_major == is.st.Rdev_major && was.st.Rdev_minor == is.st.Rdev_minor, nil
	}
	return true, nil
}

// Differ writes differences one after the other, as Unified does.
type Differ struct{ u unified }

// NewDiffer makes one that writes at most limit bytes.
func NewDiffer(w io.Writer, context, limit int) *Differ {
	return &Differ{unified{w: w, left: limit, context: context}}
}

// Write writes a difference that Between has found, whose names begin with prefix. It returns ErrLong when it would be
// too much, and writes a part then.
func (d *Differ) Write(o *Overlays, prefix string, x *Difference) error {
	all := o.folders()
	d.u.prefix, d.u.upper, d.u.lower = prefix, -1, -1
	if x.old >= 0 {
		d.u.lower = int(all[x.old].Fd())
	}
	if x.new >= 0 {
		d.u.upper = int(all[x.new].Fd())
	}
	c := x.Change
	switch c.Kind {
	case Retyped:
		gone := Change{Path: c.Path, Kind: Deleted, Type: x.Was}
		if err := d.file(&gone); err != nil {
			return err
		}
		c.Kind = Added
	case Moded:
		c.Kind = Modified
	}
	return d.file(&c)
}

// file writes about anything but a folder: what is in that comes by itself.
func (d *Differ) file(c *Change) error {
	if c.Type == "d" {
		return nil
	}
	return d.u.change(c)
}
