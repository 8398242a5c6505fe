// Package repair finds what overlayfs would show wrongly of an image, and makes one more layer that shows it as the
// image means it.
//
// A layer that holds tmp/x without an entry for tmp gets a folder tmp of mode
// 0755 that hides the 01777 of the layer below it, for overlayfs shows the
// attributes of the top-most folder. Layers are unpacked in parallel and shared
// by images with different lower layers, so the right attributes are not known
// when a layer is unpacked. They are repaired per image instead, by one more
// layer on top that holds nothing but those folders. Tools that build images
// from containers always write the entries; few images need this.
//
// Nor is it known whether a lower layer has the folder q of q/.wh.x. Where none has, there is no folder q, and the
// layer on top hides the one that was made for the whiteout: by a whiteout, or by what a lower layer has there, such as
// a symbolic link.
package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/sys"
)

// Folder is what a folder of the repairing layer gets.
type Folder struct {
	path string
	gone bool // a whiteout instead, or what a layer has that is no folder
	from int  // of that layer; 0 is none
	// source is its name there; "" is path.
	source string
	st     unix.Stat_t
	owner  []byte // unpack.OwnerXattr, or nil
}

// maxImplied bounds the names of implied folders of all layers of an image together, in bytes. Those of one layer are
// bounded by unpack already.
const maxImplied = 4 * unpack.MaxImplied

// Stack is the layers of an image, lowest first, and a walk through all of them at once.
type Stack struct {
	layers  []stackLayer
	implied []string // by any layer but the lowest, without the root; and all that are hollow
	size    int      // of their names
	links   []*lowerLink
	byName  map[linkName]*lowerLink
	levels  []level // the folder in which the walk is, below those above it; the first is the root
}

type stackLayer struct {
	root            *os.File
	implied, hollow map[string]bool // unpack.Stats
}

// level is a folder of the walk.
type level struct {
	path  string
	parts []part // one for each layer
	open  bool   // the parts have their fds
	// shown are the attributes that the overlay shows, right those of the top-most layer that has an entry for the
	// folder; where no layer has, the two are the same. Both are nil when it is no folder.
	shown, right *Folder
	// absent says that the folder is shown and none, because whiteouts are all that layers have in it.
	absent bool
	// behind is then the layer, from 1, that has something else there; 0 is none.
	behind int
}

// part is what one layer has of a folder.
type part struct {
	fd     int  // of the folder; -1 when the layer has none, or the level is closed
	exists bool // the layer has it, as a folder
	barred bool // the layer has something else there, or above
	node   bool // there, and it is no whiteout
	cut    bool // the folder, or one above it, hides those of lower layers
}

// Push adds a layer above those that there are: its folder, and what unpack said of it.
func (k *Stack) Push(dir string, of unpack.Stats) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	root := os.NewFile(uintptr(fd), dir)
	lowest := len(k.layers) == 0
	l := stackLayer{root: root, implied: make(map[string]bool, len(of.Implied)),
		hollow: make(map[string]bool, len(of.Hollow))}
	k.layers = append(k.layers, l)
	for _, p := range of.Hollow {
		l.hollow[p] = true
	}
	for _, p := range of.Implied {
		l.implied[p] = true
		if p == "" || lowest && !l.hollow[p] { // below the lowest there is nothing that would know better
			continue
		}
		if k.size += len(p); k.size > maxImplied {
			return fmt.Errorf("%w of %d bytes in the names of folders without an entry, for all layers of an image",
				unpack.ErrLimit, maxImplied)
		}
		k.implied = append(k.implied, p)
	}
	return k.pushLinks(len(k.layers)-1, of.Links)
}

// Close may be called again.
func (k *Stack) Close() {
	k.leave(0)
	for _, l := range k.layers {
		_ = l.root.Close()
	}
	k.layers = nil
}

// Fixes lists the folders that must be repaired and, because the new layer must hold them too, the folders above them;
// parents before children. It takes time in proportion to the names of implied folders: who made the layers may have
// made them as deep as they can be.
func (k *Stack) Fixes(ctx context.Context) ([]Folder, error) {
	slices.Sort(k.implied) // what is below a folder is one piece
	wanted := make(map[string]bool)
	var list []Folder
	want := func(levels []level) {
		for _, l := range slices.Backward(levels) {
			if wanted[l.path] {
				break
			}
			wanted[l.path] = true
			if l.right != nil {
				f := *l.right
				f.gone, f.from = l.absent, l.behind
				list = append(list, f)
			}
		}
	}
	for _, p := range slices.Compact(k.implied) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		at, err := k.enter(p)
		if err != nil {
			return nil, err
		}
		if at.right == nil || !at.absent && sameAttrs(at.shown, at.right) {
			continue
		}
		levels := k.levels
		if i := slices.IndexFunc(levels, func(l level) bool { return l.absent }); i >= 0 {
			levels = levels[:i+1] // with all that is in it
		}
		want(levels)
	}
	links, err := k.linkFixes(ctx, want)
	if err != nil {
		return nil, err
	}
	list = append(under(list, links), links...)
	slices.SortFunc(list, func(a, b Folder) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// keptLevels is how many levels have their fds, and keptFDs about how many they have together: a folder may be deeper,
// and an image of more layers, than a process may have files.
const (
	keptLevels = 8
	keptFDs    = 512
)

// kept is how many levels have their fds; one has to.
func (k *Stack) kept() int { return max(1, min(keptLevels, keptFDs/len(k.layers))) }

// enter goes to the folder p, by way of the nearest folder above it where the walk is.
func (k *Stack) enter(p string) (*level, error) {
	if len(k.levels) == 0 {
		top, err := k.top()
		if err != nil {
			return nil, err
		}
		k.levels = append(k.levels, top)
	}
	for {
		if l := &k.levels[len(k.levels)-1]; l.path == "" || l.path == p || strings.HasPrefix(p, l.path+"/") {
			break
		}
		k.leave(len(k.levels) - 1)
	}
	for {
		l := &k.levels[len(k.levels)-1]
		if l.path == p {
			return l, nil
		}
		if !l.open { // since the walk was further below it
			if err := k.reopen(l); err != nil {
				return nil, err
			}
		}
		rest := strings.TrimPrefix(p[len(l.path):], "/")
		name, _, _ := strings.Cut(rest, "/")
		below, err := k.below(l, name)
		k.levels = append(k.levels, below) // its fds, also of one that is not whole
		if err != nil {
			return nil, err
		}
		if old := len(k.levels) - 1 - k.kept(); old > 0 {
			k.levels[old].close()
		}
	}
}

// leave goes back until n levels are left.
func (k *Stack) leave(n int) {
	for len(k.levels) > n {
		last := len(k.levels) - 1
		if last > 0 { // the root's fds are the layers'
			k.levels[last].close()
		}
		k.levels = k.levels[:last]
	}
}

func (l *level) close() {
	for i := range l.parts {
		if l.parts[i].fd >= 0 {
			_ = unix.Close(l.parts[i].fd)
			l.parts[i].fd = -1
		}
	}
	l.open = false
}

// reopen opens a level that was closed. Layers do not change.
func (k *Stack) reopen(l *level) error {
	l.open = true
	for i := range l.parts {
		if p := &l.parts[i]; p.exists {
			fd, err := sys.OpenBeneath(int(k.layers[i].root.Fd()), l.path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return fmt.Errorf("open %q of layer %d: %w", l.path, i, err)
			}
			p.fd = fd
		}
	}
	return nil
}

// top is the level of the root.
func (k *Stack) top() (level, error) {
	l := level{parts: make([]part, len(k.layers)), open: true}
	for i := range k.layers {
		l.parts[i] = part{fd: int(k.layers[i].root.Fd()), exists: true}
	}
	err := k.look(&l)
	for i := range l.parts { // a root that hides lower layers left them out altogether
		l.parts[i].cut = false
	}
	return l, err
}

// below is the level of a folder of up.
func (k *Stack) below(up *level, name string) (level, error) {
	l := level{path: path.Join(up.path, name), parts: make([]part, len(up.parts)), open: true}
	for i, above := range up.parts {
		p := part{fd: -1, barred: above.barred, cut: above.cut}
		switch {
		case !above.exists:
		case k.byName[linkName{i, l.path}] != nil:
			p.barred = true // by a link, of which the layer's own files know nothing
		default:
			// Without following symlinks: an overlay does not merge through them.
			fd, err := sys.OpenBeneath(above.fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			switch {
			case err == nil:
				p.exists, p.fd = true, fd
			case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
				// EACCES: of a folder that not even its owner, this user, may read
				p.barred, p.node = true, isNode(above.fd, name)
			case !errors.Is(err, unix.ENOENT):
				l.parts = l.parts[:i] // of which some are open
				return l, fmt.Errorf("open %q of layer %d: %w", l.path, i, err)
			}
		}
		l.parts[i] = p
	}
	return l, k.look(&l)
}

// look fills in what is shown of a level and what is right, and which of its parts hide those of lower layers.
func (k *Stack) look(l *level) error {
	looking, hollow, some := true, true, false
	for i := len(l.parts) - 1; i >= 0; i-- {
		p := &l.parts[i]
		hides := p.barred || p.cut
		if p.exists {
			p.cut = p.cut || isOpaque(p.fd)
			hides = hides || p.cut
			if looking {
				a, err := attrsOf(l.path, p.fd)
				if err != nil {
					return err
				}
				if l.shown == nil {
					l.shown, l.right = a, a
				}
				some, hollow = true, hollow && k.layers[i].hollow[l.path]
				if !k.layers[i].implied[l.path] {
					l.right, looking = a, false
				}
			}
		}
		if looking && some && hollow && p.node {
			l.behind = i + 1
		}
		if hides {
			looking = false
		}
	}
	l.absent = some && hollow
	return nil
}

// isNode reports whether a layer has something that is neither a folder nor a whiteout.
func isNode(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Mode&unix.S_IFMT != unix.S_IFCHR
}

// attrsOf reads the attributes of a folder.
func attrsOf(p string, fd int) (*Folder, error) {
	a := &Folder{path: p}
	if err := unix.Fstat(fd, &a.st); err != nil {
		return nil, fmt.Errorf("look at %q of a layer: %w", p, err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Fgetxattr(fd, unpack.OwnerXattr, buf); err == nil {
		a.owner = buf[:n]
	}
	return a, nil
}

func isOpaque(fd int) bool {
	var b [1]byte
	n, err := unix.Fgetxattr(fd, "user.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func sameAttrs(a, b *Folder) bool {
	return a.st.Mode == b.st.Mode && a.st.Uid == b.st.Uid && a.st.Gid == b.st.Gid && string(a.owner) == string(b.owner)
}

// Write makes folders, parents first, and then sets their attributes,
// children first, because every folder made changes the time of its parent.
func (k *Stack) Write(ctx context.Context, root string, folders []Folder) error {
	for _, f := range folders {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := k.make(filepath.Join(root, f.path), f); err != nil {
			return err
		}
	}
	for _, f := range slices.Backward(folders) {
		if f.gone {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := filepath.Join(root, f.path)
		// Both ids come from this user namespace's own files, so they are mapped.
		if err := os.Lchown(p, int(f.st.Uid), int(f.st.Gid)); err != nil {
			return err
		}
		if err := unix.Chmod(p, f.st.Mode&0o7777); err != nil {
			return fmt.Errorf("chmod %s: %w", p, err)
		}
		if f.owner != nil {
			if err := unix.Setxattr(p, unpack.OwnerXattr, f.owner, 0); err != nil {
				return fmt.Errorf("keep the owner of %s: %w", p, err)
			}
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{f.st.Mtim, f.st.Mtim},
			unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", p, err)
		}
	}
	return nil
}

func (k *Stack) make(p string, f Folder) error {
	switch {
	case !f.gone:
		return os.Mkdir(p, 0o700)
	case f.from > 0:
		// One more name of what the layer has, which does not change. No part of the path is a link (below), and the
		// last is not followed.
		source := cmp.Or(f.source, f.path)
		err := unix.Linkat(int(k.layers[f.from-1].root.Fd()), source, unix.AT_FDCWD, p, 0)
		if errors.Is(err, unix.EMLINK) {
			return fmt.Errorf("%w of the file system for names of a file: %q", unpack.ErrLimit, source)
		}
		if err != nil {
			return fmt.Errorf("link %q of layer %d: %w", source, f.from-1, err)
		}
		return nil
	}
	if err := unix.Mknod(p, unix.S_IFCHR|0o600, 0); err != nil {
		return fmt.Errorf("make the whiteout %s: %w", p, err)
	}
	return nil
}
