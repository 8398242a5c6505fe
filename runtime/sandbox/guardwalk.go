package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/guard"
)

// What a look for guarded names takes at most.
const (
	maxGuardWalk  = 1_000_000 // names in the folder
	maxGuardDepth = 128       // folders
	maxGuardCover = 10_000    // mounts
	maxGitConfig  = 256 << 10 // bytes that are read of a repository's configuration
)

// cover mounts each guarded name that there is over itself, read-only, and the folders above it that the name has over
// themselves, because what nothing is mounted on can be renamed. The mounts are below that of the
// folder: they come and go with it, and into the sandbox, where they are locked.
func (g *folderGuard) cover(ctx context.Context) error {
	root, err := os.Open(g.at)
	if errors.Is(err, fs.ErrPermission) {
		g.unseen = 1 // the sandbox can not read it either
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	st, err := root.Stat()
	if err != nil || !st.IsDir() {
		return err
	}
	w := &guardWalk{ctx: ctx, g: g, root: int(root.Fd()), linked: map[inode]bool{}}
	for _, name := range g.set.Own() {
		if err := w.coverBelow(w.root, name); err != nil {
			return fmt.Errorf("guard %s: %w", name, err)
		}
	}
	err = w.folder(root, "", 0)
	for _, config := range w.configs {
		if err == nil {
			err = w.follow(config)
		}
	}
	if err == nil && len(w.linked) > 0 {
		err = w.links(root, "", 0)
	}
	g.partly, g.unseen = w.partly, w.unseen
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && g.list(root) { // what is there has been seen by whoever made the sandbox
		for _, r := range g.reported {
			if fd, _, err := openBelow(w.root, r.Name); err == nil {
				_ = unix.Close(fd)
				g.told[r.Name] = true
			}
		}
		g.changed = unix.StatxTimestamp{}
	}
	return err
}

type inode struct{ dev, ino uint64 }

// guardWalk looks for names that are there.
type guardWalk struct {
	ctx     context.Context
	g       *folderGuard
	root    int
	seen    int
	covered int
	unseen  int
	partly  bool
	configs []string       // of repositories, below the root
	linked  map[inode]bool // guarded files that have other names
}

// again opens a folder below another one anew: what has been mounted over it is what it is then.
func (w *guardWalk) again(parent int, name string) (*os.File, error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// entries reads a folder; nil where that can not be done, which is counted.
func (w *guardWalk) entries(dir *os.File, depth int) ([]fs.DirEntry, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	if err != nil { // it has been removed meanwhile, or its disk is broken
		w.unseen++
		return nil, nil
	}
	if w.seen += len(entries); w.seen > maxGuardWalk || depth > maxGuardDepth || w.covered > maxGuardCover {
		w.partly = true
		return nil, nil
	}
	return entries, nil
}

// folder covers what is guarded in dir, which is rel below the root.
func (w *guardWalk) folder(dir *os.File, rel string, depth int) error {
	entries, err := w.entries(dir, depth)
	if err != nil {
		return err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	repository := has("HEAD") && guard.IsRepository(has)
	if repository {
		if err := w.repository(dir, rel); err != nil {
			return err
		}
		if rel != "" { // dir is below the mount now
			if dir, err = w.again(w.root, rel); err != nil {
				return fmt.Errorf("guard %s: %w", rel, err)
			}
			defer dir.Close()
		}
	}
	for _, e := range entries {
		name := e.Name()
		names := w.g.set.Candidates(rel, name)
		for _, n := range names {
			if err := w.coverBelow(int(dir.Fd()), n); err != nil {
				return fmt.Errorf("guard %s: %w", path.Join(rel, n), err)
			}
		}
		if !e.IsDir() || slices.Contains(names, name) || w.skips(rel, name, repository) {
			continue
		}
		sub, err := w.again(int(dir.Fd()), name)
		switch {
		case errors.Is(err, fs.ErrPermission):
			w.unseen++
			continue
		case err != nil:
			continue // gone, or no folder
		}
		err = w.folder(sub, path.Join(rel, name), depth+1)
		if closed := sub.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// skips reports whether a folder of a repository has nothing that anybody obeys, by its place: what git keeps there has its own names.
func (w *guardWalk) skips(rel, name string, repository bool) bool {
	if !repository {
		return false
	}
	if path.Base(rel) == ".git" || strings.Contains("/"+rel+"/", "/.git/") {
		return name != "modules" && name != "worktrees"
	}
	return name == "objects"
}

// repository covers the folder of a repository: by its mount PID 1 knows that it was there (guest/DESIGN.md).
func (w *guardWalk) repository(dir *os.File, rel string) error {
	names := w.g.set.InRepository()
	if len(names) == 0 {
		return nil
	}
	if config := path.Join(rel, "config"); !slices.Contains(w.configs, config) {
		w.configs = append(w.configs, config)
	}
	if rel != "" {
		var st unix.Statx_t
		if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st); err != nil {
			return err
		}
		if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
			if err := overItself(int(dir.Fd()), false, false); err != nil {
				return fmt.Errorf("guard %s: %w", rel, err)
			}
			w.covered++
		}
	}
	for _, name := range names {
		if w.g.refuses && (name == "modules" || name == "worktrees") {
			continue // what is in them has its own names, and new ones are not made
		}
		if err := w.coverBelow(w.root, path.Join(rel, name)); err != nil {
			return fmt.Errorf("guard %s: %w", path.Join(rel, name), err)
		}
	}
	return nil
}

// coverBelow covers a name below at.
func (w *guardWalk) coverBelow(at int, name string) error {
	parts := strings.Split(name, "/")
	if last := parts[len(parts)-1]; w.g.refuses && len(parts) == 2 && parts[0] == ".git" && (last == "modules" || last == "worktrees") {
		return nil // as in repository
	}
	for i := range parts {
		dir := i < len(parts)-1
		fd, st, err := openBelow(at, path.Join(parts[:i+1]...))
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
			return nil // told of when there is one: unguarded
		case errors.Is(err, unix.EACCES):
			w.unseen++
			return nil
		case err != nil:
			return err
		}
		kind := st.Mode & unix.S_IFMT
		if dir && kind == unix.S_IFREG { // such as .git of a worktree, which says where the folder is
			dir = false
			parts = parts[:i+1]
		}
		if kind == unix.S_IFREG && !dir && st.Nlink > 1 {
			w.linked[inode{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino}] = true
		}
		mounted := st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
		if (kind == unix.S_IFDIR || kind == unix.S_IFREG) && (!mounted || !dir) {
			err = overItself(fd, !dir, mounted)
			w.covered++
		}
		_ = unix.Close(fd)
		if err != nil || !dir {
			return err
		}
	}
	return nil
}

// follow guards what the configuration of a repository names in the folder: where its hooks are, and more configuration.
func (w *guardWalk) follow(config string) error {
	above := path.Dir(config) // of the configuration
	work := above             // of the files
	if path.Base(above) == ".git" {
		work = path.Dir(above)
	}
	read := map[string]bool{}
	for next := []string{config}; len(next) > 0 && len(read) < 16; {
		name := next[0]
		if next = next[1:]; read[name] {
			continue
		}
		read[name] = true
		text, err := w.read(name)
		if err != nil {
			continue // there is none, or git can not read it either
		}
		named := guard.GitConfig(text)
		for _, p := range named.Hooks {
			if err := w.named(w.inside(work, p)); err != nil {
				return err
			}
		}
		for _, p := range named.Includes {
			at := w.inside(path.Dir(name), p)
			if err := w.named(at); err != nil {
				return err
			}
			if at != "" {
				next = append(next, at)
			}
		}
	}
	return nil
}

// named guards a name that configuration names; "" is none.
func (w *guardWalk) named(name string) error {
	if name == "" || slices.Contains(w.g.named, name) || len(w.g.named) >= 64 {
		return nil
	}
	if m, ok := w.g.set.Path(name, false); ok && !m.Above {
		return nil
	}
	w.g.named = append(w.g.named, name)
	return w.coverBelow(w.root, name)
}

// inside is where in the folder a path of configuration in the folder at leads; "" outside.
func (w *guardWalk) inside(at, p string) string {
	if filepath.IsAbs(p) {
		rel, ok := below(p, w.g.mount.Source)
		if p = rel; !ok || w.g.mount.Source == "" {
			return ""
		}
	} else {
		p = path.Join(at, p)
	}
	if p = path.Clean(p); p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.HasPrefix(p, "~") {
		return ""
	}
	return p
}

func (w *guardWalk) read(name string) ([]byte, error) {
	fd, err := unix.Openat2(w.root, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return io.ReadAll(io.LimitReader(f, maxGitConfig))
}

// links covers the other names of guarded files, by which they could be written as well.
func (w *guardWalk) links(dir *os.File, rel string, depth int) error {
	w.seen = 0
	return w.linksBelow(dir, rel, depth)
}

func (w *guardWalk) linksBelow(dir *os.File, rel string, depth int) error {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	entries, err := w.entries(dir, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			var st unix.Statx_t
			err := unix.Statx(int(dir.Fd()), e.Name(), unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_NLINK, &st)
			if err == nil && st.Nlink > 1 && w.linked[inode{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino}] {
				if err := w.coverBelow(int(dir.Fd()), e.Name()); err != nil {
					return fmt.Errorf("guard %s: %w", path.Join(rel, e.Name()), err)
				}
			}
			continue
		}
		if !e.IsDir() {
			continue
		}
		sub, err := w.again(int(dir.Fd()), e.Name())
		if err != nil {
			continue // as in folder
		}
		err = w.linksBelow(sub, path.Join(rel, e.Name()), depth+1)
		if closed := sub.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}
