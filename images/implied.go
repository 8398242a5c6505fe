package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images/unpack"
	"github.com/hutch-sh/hutch/internal/sys"
)

// A layer that holds tmp/x without an entry for tmp gets a folder tmp of mode
// 0755 that hides the 01777 of the layer below it, for overlayfs shows the
// attributes of the top-most folder. Layers are unpacked in parallel and shared
// by images with different lower layers, so the right attributes are not known
// when a layer is unpacked. They are repaired per image instead, by one more
// layer on top that holds nothing but those folders. Tools that build images
// from containers always write the entries; few images need this.

// fixLayer makes the repairing layer of an image, if it needs one, and leases
// it. It is nil when none is needed.
func (s *Store) fixLayer(ctx context.Context, diffIDs []string, layers []*layer) (*layer, error) {
	stack := stack{s: s}
	defer stack.close()
	for i, d := range diffIDs {
		if err := stack.push(s.layerUnit(d), layers[i].meta.Implied); err != nil {
			return nil, err
		}
	}
	fixes := stack.fixes()
	if len(fixes) == 0 {
		return nil, nil
	}
	name := s.fixUnit(diffIDs)
	unlock, err := s.lockUnit(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if l, err := s.leaseLayer(name); l != nil || err != nil {
		return l, err
	}
	t, err := s.newTmp()
	if err != nil {
		return nil, err
	}
	defer t.discard()
	work := filepath.Join(t.path, "fix")
	if err := errors.Join(os.Mkdir(work, 0o700), writeFolders(filepath.Join(work, unitRoot), fixes), writeManifest(ctx, work)); err != nil {
		return nil, err
	}
	return s.commitLayer(work, name, unpack.Stats{Entries: int64(len(fixes))})
}

// fixUnit names the repairing layer by the layers it lies on.
func (s *Store) fixUnit(diffIDs []string) string {
	sum := sha256.Sum256([]byte(strings.Join(diffIDs, " ")))
	return s.layerUnit("fix:" + hex.EncodeToString(sum[:]))
}

// folderAttrs are what a folder of the repairing layer gets.
type folderAttrs struct {
	path  string
	st    unix.Stat_t
	owner []byte // unpack.OwnerXattr, or nil
}

// stack is the layers of an image, lowest first.
type stack struct {
	s       *Store
	layers  []stackLayer
	implied []string // by any layer, without the root
}

type stackLayer struct {
	root    *os.File
	implied map[string]bool
}

func (k *stack) push(unit string, implied []string) error {
	root, err := openDir(k.s.path(path.Join(unit, unitRoot)))
	if err != nil {
		return err
	}
	l := stackLayer{root: root, implied: make(map[string]bool, len(implied))}
	for _, p := range implied {
		l.implied[p] = true
		if p != "" {
			k.implied = append(k.implied, p)
		}
	}
	k.layers = append(k.layers, l)
	return nil
}

func (k *stack) close() {
	for _, l := range k.layers {
		_ = l.root.Close()
	}
}

// fixes lists the folders that must be repaired and, because the new layer
// must hold them too, the folders above them; parents before children.
func (k *stack) fixes() []folderAttrs {
	slices.Sort(k.implied)
	wanted := make(map[string]folderAttrs)
	for _, p := range slices.Compact(k.implied) {
		shown, right := k.look(p)
		if right == nil || sameAttrs(shown, right) {
			continue
		}
		for q := p; ; q, _ = parentOf(q) {
			if _, right := k.look(q); right != nil {
				wanted[q] = *right
			}
			if q == "" {
				break
			}
		}
	}
	list := make([]folderAttrs, 0, len(wanted))
	for _, f := range wanted {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b folderAttrs) int { return strings.Compare(a.path, b.path) })
	return list
}

func parentOf(p string) (dir, base string) {
	i := strings.LastIndexByte(p, '/')
	return p[:max(i, 0)], p[i+1:]
}

// look finds the attributes that the overlay shows for a folder, and those of
// the top-most layer that has an entry for it; where no layer has, the two are
// the same. Both are nil when p is no folder.
func (k *stack) look(p string) (shown, right *folderAttrs) {
	for _, l := range slices.Backward(k.layers) {
		a, more := l.at(p)
		if a == nil {
			if more {
				continue
			}
			break
		}
		if shown == nil {
			shown, right = a, a
		}
		if !l.implied[p] {
			return shown, a
		}
		if !more {
			break
		}
	}
	return shown, right
}

// at gives the folder p of one layer; more tells whether lower layers can have
// a part in what the overlay shows there.
func (l *stackLayer) at(p string) (a *folderAttrs, more bool) {
	name := p
	if name == "" {
		name = "."
	}
	// Without following symlinks: an overlay does not merge through them.
	fd, err := sys.OpenBeneath(int(l.root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, errors.Is(err, unix.ENOENT) && !l.cut(p)
	}
	defer unix.Close(fd)
	a = &folderAttrs{path: p}
	if err := unix.Fstat(fd, &a.st); err != nil {
		return nil, false
	}
	buf := make([]byte, 64)
	if n, err := unix.Fgetxattr(fd, unpack.OwnerXattr, buf); err == nil {
		a.owner = buf[:n]
	}
	return a, !isOpaque(fd) && !l.cut(p)
}

// cut reports whether a folder above p hides those of lower layers.
func (l *stackLayer) cut(p string) bool {
	for q, _ := parentOf(p); q != ""; q, _ = parentOf(q) {
		fd, err := sys.OpenBeneath(int(l.root.Fd()), q, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			continue // absent here; what is no folder ended the lookup of p
		}
		opaque := isOpaque(fd)
		_ = unix.Close(fd)
		if opaque {
			return true
		}
	}
	return false
}

func isOpaque(fd int) bool {
	var b [1]byte
	n, err := unix.Fgetxattr(fd, "user.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func sameAttrs(a, b *folderAttrs) bool {
	return a.st.Mode == b.st.Mode && a.st.Uid == b.st.Uid && a.st.Gid == b.st.Gid && string(a.owner) == string(b.owner)
}

// writeFolders makes folders, parents first, and then sets their attributes,
// children first, because every folder made changes the time of its parent.
func writeFolders(root string, folders []folderAttrs) error {
	for _, f := range folders {
		if err := os.Mkdir(filepath.Join(root, f.path), 0o700); err != nil {
			return err
		}
	}
	for _, f := range slices.Backward(folders) {
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
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{f.st.Mtim, f.st.Mtim}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", p, err)
		}
	}
	return nil
}
