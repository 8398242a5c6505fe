// Package diskuse measures what folders take on disk whose content is hostile: written by
// a sandbox that goes on writing meanwhile.
package diskuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Usage is what files take.
type Usage struct {
	Bytes  int64 // allocated blocks: of a sparse file what is there, not how long it says it is
	Inodes int64 // files, folders and everything else that has one; one with many names is one
}

// Add adds u to v.
func (u Usage) Add(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Exceeds says that u is more than a limit, in which 0 is none.
func (u Usage) Exceeds(limit Usage) bool {
	return limit.Bytes > 0 && u.Bytes > limit.Bytes || limit.Inodes > 0 && u.Inodes > limit.Inodes
}

// One folder is kept open a level, so that one that is moved away meanwhile leads nowhere
// else. What lies deeper than maxOpen comes afterwards, by its path from the top: real
// trees have some thirty levels.
const (
	maxOpen  = 128
	maxLate  = 256  // folders that may wait for that
	maxDepth = 4096 // of all folders: a path is walked again for each maxOpen of its names
)

// batch is how many names of a folder are read at once. With maxOpen it bounds the memory.
const batch = 128

// ErrTooDeep says that folders are nested deeper than this package follows.
var ErrTooDeep = fmt.Errorf("folders are nested more than %d deep, or %d of them more than %d", maxDepth, maxLate,
	maxOpen)

// Trees measures the trees at the given paths together, and stops as soon as the sum exceeds
// stop: what it says then is a lower bound. It follows no symbolic link and enters no
// mount. What changes meanwhile is counted as before or after; a file that is moved from
// one folder to another may be missed, or counted once all the same.
func Trees(ctx context.Context, stop Usage, paths ...string) (Usage, error) {
	w := walker{ctx: ctx, stop: stop, seen: map[inode]struct{}{}}
	for _, path := range paths {
		if err := w.tree(path); err != nil && !errors.Is(err, errStop) {
			return w.sum, fmt.Errorf("measure %s: %w", path, err)
		}
	}
	return w.sum, nil
}

// errStop ends a walk that has seen enough.
var errStop = errors.New("over the limit")

type inode struct{ dev, ino uint64 }

type walker struct {
	ctx  context.Context
	stop Usage
	sum  Usage
	// seen are inodes with more than one name. There are no more than stop.Inodes.
	seen map[inode]struct{}
	dev  uint64     // of the tree
	path []string   // names from the top of the tree to where the walk is
	late [][]string // paths of folders that come later
}

func (w *walker) tree(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), filepath.Base(path))
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	w.dev = st.Dev
	if err := w.count(&st); err != nil {
		return err
	}
	w.path, w.late = nil, nil
	for err = w.folder(dir, 1); err == nil && len(w.late) > 0; {
		last := len(w.late) - 1
		w.path, w.late = w.late[last], w.late[:last]
		err = w.again(dir)
	}
	return err
}

// again counts what is in the folder at w.path below top.
func (w *walker) again(top *os.File) error {
	at := top
	defer func() {
		if at != top {
			at.Close()
		}
	}()
	for _, name := range w.path {
		sub, err := openFolder(at, name)
		if sub == nil {
			return err // or moved away since
		}
		if at != top {
			at.Close()
		}
		at = sub
	}
	return w.folder(at, 1)
}

// openFolder returns nil where name is no folder, or not any more.
func openFolder(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// folder counts what is in dir, which is its caller's. depth is how many are open.
func (w *walker) folder(dir *os.File, depth int) error {
	if depth > maxOpen {
		if len(w.late) == maxLate || len(w.path) >= maxDepth {
			return ErrTooDeep
		}
		w.late = append(w.late, slices.Clone(w.path))
		return nil
	}
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := w.entry(dir, name, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // the end, or removed
			return nil
		case err != nil:
			return err
		}
	}
}

// entry counts name, and all below it where it is a folder.
func (w *walker) entry(dir *os.File, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed since
	}
	if err != nil {
		return err
	}
	if st.Dev != w.dev {
		return nil // a mount
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.count(&st)
	}
	sub, err := openFolder(dir, name)
	if sub == nil {
		return err // or something else by now
	}
	defer sub.Close()
	if err := w.count(&st); err != nil {
		return err
	}
	w.path = append(w.path, name)
	err = w.folder(sub, depth+1)
	w.path = w.path[:len(w.path)-1]
	return err
}

// count adds one inode. st_blocks are of 512 bytes whatever the file system's are (stat(2)).
func (w *walker) count(st *unix.Stat_t) error {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := inode{st.Dev, st.Ino}
		if _, again := w.seen[id]; again {
			return nil
		}
		w.seen[id] = struct{}{}
	}
	w.sum = w.sum.Add(Usage{st.Blocks * 512, 1})
	if w.sum.Exceeds(w.stop) {
		return errStop
	}
	return nil
}

// FreeAt says what is free on the file system of path. Free is what the kernel has not given
// away, root's part included: only how it changes is of interest.
func FreeAt(path string) (free, total Usage, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(path, &st)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return Usage{}, Usage{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return Usage{int64(st.Bfree) * st.Bsize, int64(st.Ffree)}, Usage{int64(st.Blocks) * st.Bsize, int64(st.Files)}, nil
}
