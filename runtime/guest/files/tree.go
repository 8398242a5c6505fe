package files

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/gitignore"
)

// tree walks the files of a tree in the order of their names, as ripgrep does: without what ignore files leave out and
// without hidden files. It follows no symbolic link, and does not enter the kernel's file systems from others.
type tree struct {
	ctx      context.Context
	globs    *gitignore.List // what is wanted; nil is everything
	hidden   bool
	noIgnore bool
	folders  bool // visit is called for folders, too
	visit    func(f *found) (more bool)

	skipped int64 // folders that could not be entered, or are too deep
}

// found is one file or folder of a tree.
type found struct {
	dir    *folder
	name   string
	path   string // below the top
	folder bool
}

// folder is an open folder, which is closed when nobody needs it.
type folder struct {
	fd   int
	refs atomic.Int32
}

func newFolder(fd int) *folder {
	f := &folder{fd: fd}
	f.refs.Store(1)
	return f
}

func (f *folder) keep() { f.refs.Add(1) }

func (f *folder) release() {
	if f.refs.Add(-1) == 0 {
		_ = unix.Close(f.fd)
	}
}

// layer is what a folder's ignore files say; those of folders above follow.
type layer struct {
	up     *layer
	prefix string // of the folder, below the top, with a slash; or what leads from it to the top
	above  bool   // the folder is above the top: prefix goes before a path instead of coming off it
	ignore *gitignore.List
	git    *gitignore.List
	repo   *gitignore.List // .git/info/exclude
	root   bool            // of a repository: no .gitignore above is about what is below
}

// walk visits what is below the folder top, which it closes.
func (t *tree) walk(top int, abs string) error {
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		_ = unix.Close(top)
		return err
	}
	dir := newFolder(top)
	defer dir.release()
	var up *layer
	if !t.noIgnore {
		up = t.above(abs)
	}
	_, err := t.enter(dir, "", st.Dev, up, 1)
	return err
}

// above reads the ignore files of the folders above the top.
func (t *tree) above(abs string) *layer {
	var list []*layer
	abs = path.Clean(abs)
	for below := ""; abs != "/" && len(list) < maxDepth; {
		below = path.Base(abs) + "/" + below
		abs = path.Dir(abs)
		fd, err := openat(unix.AT_FDCWD, abs, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			break
		}
		l := readLayer(fd, nil, "", nil)
		_ = unix.Close(fd)
		if l != nil {
			l.prefix, l.above = below, true
			list = append(list, l)
		}
	}
	var up *layer
	for i := len(list) - 1; i >= 0; i-- {
		list[i].up = up
		up = list[i]
	}
	return up
}

// readLayer reads the ignore files of a folder, of which names has those that there are if it is not nil.
func readLayer(fd int, names []entry, prefix string, up *layer) *layer {
	has := func(name string) bool {
		if names == nil {
			return true
		}
		_, ok := slices.BinarySearchFunc(names, name, func(e entry, n string) int { return cmp.Compare(e.name, n) })
		return ok
	}
	l := &layer{up: up, prefix: prefix}
	if has(".ignore") {
		l.ignore = readIgnore(fd, ".ignore")
	}
	if has(".gitignore") {
		l.git = readIgnore(fd, ".gitignore")
	}
	if has(".git") {
		var st unix.Stat_t
		l.root = unix.Fstatat(fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil
		l.repo = readIgnore(fd, ".git/info/exclude")
	}
	if l.ignore.Empty() && l.git.Empty() && l.repo.Empty() && !l.root {
		return up
	}
	return l
}

// maxIgnore bounds an ignore file in bytes.
const maxIgnore = 256 << 10

func readIgnore(dir int, name string) *gitignore.List {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, 0) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	data, err := io.ReadAll(io.LimitReader(file(fd), maxIgnore))
	if err != nil {
		return nil
	}
	return gitignore.Parse(string(data))
}

// verdict is what the ignore files say of a path: a .ignore before every .gitignore, those before .git/info/exclude;
// of the same kind the one that is nearest. A .gitignore counts in a repository only.
func (l *layer) verdict(path string, isFolder bool) gitignore.Verdict {
	inRepo := false
	for u := l; u != nil && !inRepo; u = u.up {
		inRepo = u.root
	}
	for kind := range 3 {
		for u := l; u != nil; u = u.up {
			list := u.ignore
			switch {
			case kind > 0 && !inRepo:
				return gitignore.None
			case kind == 1:
				list = u.git
			case kind == 2:
				list = u.repo
			}
			if !list.Empty() {
				rel := strings.TrimPrefix(path, u.prefix)
				if u.above {
					rel = u.prefix + path
				}
				if v := list.Match(rel, isFolder); v != gitignore.None {
					return v
				}
			}
			if kind > 0 && u.root {
				break
			}
		}
	}
	return gitignore.None
}

// wanted decides about one entry.
func (t *tree) wanted(path, name string, isFolder bool, l *layer) bool {
	if t.globs != nil {
		switch t.globs.Match(path, isFolder) {
		case gitignore.Ignore: // it is what was asked for
			return true
		case gitignore.Include: // with "!" it is left out
			return false
		}
		if !isFolder && t.globs.Positive() {
			return false
		}
	}
	if !t.noIgnore && l != nil {
		switch l.verdict(path, isFolder) {
		case gitignore.Ignore:
			return false
		case gitignore.Include:
			return true
		}
	}
	return t.hidden || name[0] != '.'
}

// entry is one name of a folder.
type entry struct {
	name string
	kind byte // DT_*
}

func (t *tree) enter(dir *folder, prefix string, dev uint64, up *layer, depth int) (more bool, err error) {
	names, err := t.names(dir.fd)
	if err != nil {
		return false, err
	}
	l := up
	if !t.noIgnore {
		l = readLayer(dir.fd, names, prefix, up)
	}
	for _, e := range names {
		if e.kind == unix.DT_UNKNOWN {
			e.kind = kindOf(dir.fd, e.name)
		}
		isFolder := e.kind == unix.DT_DIR
		if !isFolder && e.kind != unix.DT_REG || e.name == ".git" {
			continue
		}
		f := &found{dir: dir, name: e.name, path: prefix + e.name, folder: isFolder}
		if !t.wanted(f.path, e.name, isFolder, l) {
			continue
		}
		if (!isFolder || t.folders) && !t.visit(f) {
			return false, nil
		}
		if isFolder {
			if more, err := t.below(f, dev, l, depth); err != nil || !more {
				return false, err
			}
		}
	}
	return true, nil
}

// below enters a folder of another. One that cannot be entered is no error of the tree.
func (t *tree) below(f *found, dev uint64, up *layer, depth int) (more bool, err error) {
	if depth == maxDepth || len(f.path) > unix.PathMax/2 {
		t.skipped++
		return true, nil
	}
	fd, err := openat(f.dir.fd, f.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		t.skipped++
		return true, nil
	}
	dir := newFolder(fd)
	defer dir.release()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != dev && ofKernel(fd) {
		return true, nil
	}
	more, err = t.enter(dir, f.path+"/", st.Dev, up, depth+1)
	if err != nil && !errors.Is(err, unix.ECANCELED) {
		t.skipped++
		return true, nil
	}
	return more, err
}

// kernelFS are file systems whose files are no files of anybody's (linux/magic.h).
var kernelFS = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEVPTS_SUPER_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true,
	unix.BPF_FS_MAGIC: true, unix.EFIVARFS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.BINFMTFS_MAGIC: true,
	0x19800202: true /* mqueue */, 0x62656570: true, /* configfs */
}

func ofKernel(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && kernelFS[fs.Type]
}

func kindOf(dir int, name string) byte {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT of dirent.h
}

// names reads a folder, with the kinds that the file system tells.
func (t *tree) names(fd int) ([]entry, error) {
	var names []entry
	var buf [16 << 10]byte
	for {
		if t.ctx.Err() != nil {
			return nil, unix.ECANCELED
		}
		var n int
		err := retry(func() (err error) { n, err = unix.Getdents(fd, buf[:]); return err })
		if err != nil {
			return nil, err
		}
		if n <= 0 || len(names) >= maxNames {
			break
		}
		// linux_dirent64 is ino (8), off (8), reclen (2), type (1), name (getdents(2)).
		for b := buf[:n]; len(b) >= 19; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			name := b[19:size]
			if i := slices.Index(name, 0); i >= 0 {
				name = name[:i]
			}
			if s := string(name); s != "." && s != ".." {
				names = append(names, entry{s, b[18]})
			}
			b = b[size:]
		}
	}
	slices.SortFunc(names, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return names, nil
}
