package guard

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

	table "github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// What a look for guarded names takes at most.
const (
	maxWalk      = 4_000_000 // names in the folder
	maxDepth     = 200       // folders
	maxCover     = 10_000    // mounts
	maxNamed     = 64        // files that configuration names
	maxGitConfig = 256 << 10 // bytes that are read of a repository's configuration
)

// Cover covers the folder that is mounted at target, where it is guarded.
func (l Folders) Cover(ctx context.Context, target string) error {
	i := slices.IndexFunc(l, func(g *folder) bool { return g.target == path.Clean(target) })
	if i < 0 {
		return nil
	}
	return l[i].cover(ctx)
}

// cover mounts each guarded name that there is over itself, read-only, and the folders above it that the name has over
// themselves, because what nothing is mounted on can be renamed. The mounts are below that of the
// folder: they come and go with it, and into the sandbox, where they are locked.
func (g *folder) cover(ctx context.Context) error {
	root, err := os.Open(g.at)
	if errors.Is(err, fs.ErrPermission) {
		g.unseen = 1 // the sandbox cannot read it either
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
	w := &walk{ctx: ctx, g: g, root: int(root.Fd()), linked: map[inode]bool{}}
	for _, name := range g.set.Own() {
		if err := w.coverBelow(w.root, name); err != nil {
			return fmt.Errorf("guard %s: %w", name, err)
		}
	}
	err = w.folder(nil, root, "", 0)
	for _, at := range w.repositories {
		if err == nil {
			err = w.follow(at)
		}
	}
	if err == nil && len(w.linked) > 0 {
		err = w.links(root, "", 0)
	}
	g.unseen = w.unseen
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		_, err = root.Seek(0, io.SeekStart)
	}
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

// walk looks for names that are there.
type walk struct {
	ctx     context.Context
	g       *folder
	root    int
	seen    int
	covered int
	unseen  int
	// repositories are the folders of those that were found, below the root.
	repositories []string
	linked       map[inode]bool // guarded files that have other names
}

// again opens a folder below another one anew: what has been mounted over it is what it is then.
func (w *walk) again(parent int, name string) (*os.File, error) {
	fd, err := sys.OpenAcross(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// tooMuch refuses a folder that is too large to be looked at: what is not looked at could be written, and a sandbox can
// make it so.
func (w *walk) tooMuch(what string) error {
	return api.Errorf(api.FailedPrecondition,
		"%s has %s: not all names in it that programs of yours obey can be guarded", w.g.mount.Source, what).
		WithHint("mount a smaller folder, or :overlay; --unguard all takes the guard off")
}

// entries reads what of a folder matters: keep decides, of names that are no folders; and whether it has a HEAD, as
// each repository has. It is nothing where the folder cannot be read, which is counted.
func (w *walk) entries(dir *os.File, depth int, keep func(fs.DirEntry) bool) (kept []fs.DirEntry, head bool,
	err error) {
	for {
		if err := w.ctx.Err(); err != nil {
			return nil, false, err
		}
		entries, err := dir.ReadDir(1024)
		if w.seen += len(entries); w.seen > maxWalk || depth > maxDepth {
			return nil, false, w.tooMuch(fmt.Sprintf("over %d names, or folders in each other deeper than %d",
				maxWalk, maxDepth))
		}
		for _, e := range entries {
			head = head || e.Name() == "HEAD"
			if e.IsDir() || keep(e) {
				kept = append(kept, e)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return kept, head, nil
		case err != nil: // it has been removed meanwhile, or its disk is broken
			w.unseen++
			return kept, head, nil
		}
	}
}

// folder covers what is guarded in dir, which is rel below the root, and in parent.
func (w *walk) folder(parent, dir *os.File, rel string, depth int) error {
	entries, repository, err := w.entries(dir, depth,
		func(e fs.DirEntry) bool { return len(w.g.set.Candidates(rel, e.Name())) > 0 })
	if err != nil {
		return err
	}
	if repository {
		if dir, err = w.repository(parent, dir, rel); err != nil {
			return fmt.Errorf("guard %s: %w", rel, err)
		}
		if parent != nil {
			defer dir.Close()
		}
	}
	if !repository && w.wasRepository(dir, rel) {
		if err := w.obeyedIn(dir); err != nil {
			return fmt.Errorf("guard %s: %w", rel, err)
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
		if !e.IsDir() || slices.Contains(names, name) || repository && name == "objects" {
			continue
		}
		sub, err := w.again(int(dir.Fd()), name)
		switch {
		case errors.Is(err, fs.ErrPermission):
			w.unseen++
			continue
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			continue // gone, or no folder any more
		case err != nil:
			return fmt.Errorf("guard %s: %w", path.Join(rel, name), err)
		}
		err = w.folder(dir, sub, path.Join(rel, name), depth+1)
		if closed := sub.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// repository covers the folder of a repository: by its mount PID 1 knows that it was there (guest/DESIGN.md). It
// returns the folder as it is then, which is another file than dir unless that is the root.
func (w *walk) repository(parent, dir *os.File, rel string) (*os.File, error) {
	names := w.g.set.InRepository()
	w.repositories = append(w.repositories, rel)
	if parent != nil {
		var st unix.Statx_t
		if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE,
			&st); err != nil {
			return nil, err
		}
		if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 && len(names) > 0 {
			if err := w.over(int(dir.Fd()), false, false); err != nil {
				return nil, err
			}
		}
		var err error
		if dir, err = w.again(int(parent.Fd()), path.Base(rel)); err != nil {
			return nil, err
		}
	}
	return dir, w.obeyedIn(dir)
}

// obeyedIn covers what git obeys in the folder of a repository.
func (w *walk) obeyedIn(dir *os.File) error {
	for _, name := range w.g.set.InRepository() {
		if w.g.holdsRepositories(".git/" + name) {
			continue
		}
		if err := w.coverBelow(int(dir.Fd()), name); err != nil {
			return err
		}
	}
	return nil
}

// wasRepository reports whether a folder is a repository among those of submodules and worktrees but for its HEAD,
// which a sandbox may have removed: what git obeys there is to stay as it is for whoever puts one back.
func (w *walk) wasRepository(dir *os.File, rel string) bool {
	if !w.g.refuses || !strings.Contains(rel, "/modules/") && !strings.Contains(rel, "/worktrees/") {
		return false
	}
	among := false
	for i := 0; i < len(rel); i++ {
		if rel[i] != '/' {
			continue
		}
		if at := rel[:i]; path.Base(at) == ".git" || slices.Contains(w.repositories, at) {
			first, _, _ := strings.Cut(rel[i+1:], "/")
			among = w.g.holdsRepositories(".git/" + first)
		}
	}
	return among && slices.ContainsFunc([]string{"config", "commondir"}, func(name string) bool {
		fd, st, err := openBelow(int(dir.Fd()), name)
		if err != nil {
			return false
		}
		_ = unix.Close(fd)
		return st.Mode&unix.S_IFMT == unix.S_IFREG
	})
}

// holdsRepositories reports whether a name is a folder of repositories that is not covered itself: what is in them has
// its own names, and PID 1 makes no new ones.
func (g *folder) holdsRepositories(name string) bool {
	return g.refuses && (name == ".git/modules" || name == ".git/worktrees")
}

// over is overItself, and counts.
func (w *walk) over(fd int, readOnly, mounted bool) error {
	if w.covered++; w.covered > maxCover {
		return w.tooMuch(fmt.Sprintf("over %d of them", maxCover))
	}
	return overItself(fd, readOnly, mounted)
}

// coverBelow covers a name below at.
func (w *walk) coverBelow(at int, name string) error {
	parts := strings.Split(name, "/")
	if w.g.holdsRepositories(name) {
		return nil
	}
	// What is above a name that is not there need not stay: PID 1 makes no such name below another folder either.
	if fd, _, err := openBelow(at, name); w.g.refuses && errors.Is(err, unix.ENOENT) && fileAbove(at, name) == "" {
		return nil
	} else if err == nil {
		_ = unix.Close(fd)
	}
	for i := range parts {
		dir := i < len(parts)-1
		fd, st, err := openBelow(at, path.Join(parts[:i+1]...))
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
			return nil // reported when there is one: unguarded
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
			err = w.over(fd, !dir, mounted)
		}
		_ = unix.Close(fd)
		if err != nil || !dir {
			return err
		}
	}
	return nil
}

// follow guards what the configuration of a repository names in the folder: where its hooks are, more configuration,
// and commands.
func (w *walk) follow(at string) error {
	config := path.Join(at, "config")
	tops := w.tops(at)
	read := map[string]bool{}
	for next := []string{config, path.Join(at, "config.worktree")}; len(next) > 0; {
		name := next[0]
		if next = next[1:]; read[name] {
			continue
		}
		if read[name] = true; len(read) > maxNamed {
			return w.tooMuch(fmt.Sprintf("configuration of repositories in over %d files", maxNamed))
		}
		text, err := w.read(name)
		if err != nil {
			continue // there is none, or git cannot read it either
		}
		named := table.GitConfig(text)
		if named.Worktree != "" {
			tops = append(tops, w.inside(at, named.Worktree))
		}
		for _, top := range tops {
			for _, p := range append(named.Hooks, named.Commands...) {
				if err := w.named(w.inside(top, p)); err != nil {
					return err
				}
			}
		}
		for _, p := range named.Includes {
			more := w.inside(path.Dir(name), p)
			if err := w.named(more); err != nil {
				return err
			}
			if more != "" {
				next = append(next, more)
			}
		}
	}
	return nil
}

// tops are the tops of the working trees of the repository at.
func (w *walk) tops(at string) []string {
	tops := []string{at}
	if path.Base(at) == ".git" {
		tops = []string{path.Dir(at)}
	}
	trees, err := w.again(w.root, path.Join(at, "worktrees"))
	if err != nil {
		return tops // there are none
	}
	defer trees.Close()
	names, _ := trees.Readdirnames(1024)
	for _, name := range names {
		if text, err := w.read(path.Join(at, "worktrees", name, "gitdir")); err == nil {
			if file := w.inside(path.Join(at, "worktrees", name), strings.TrimSuffix(string(text), "\n")); file != "" {
				tops = append(tops, path.Dir(file))
			}
		}
	}
	return tops
}

// named guards a name that configuration names; "" is none.
func (w *walk) named(name string) error {
	if name == "" || slices.Contains(w.g.named, name) {
		return nil
	}
	if m, ok := w.g.set.Path(name, false); ok && !m.Above {
		return nil
	}
	if len(w.g.named) >= maxNamed {
		return w.tooMuch(fmt.Sprintf("configuration of repositories that names over %d files", maxNamed))
	}
	w.g.named = append(w.g.named, name)
	return w.coverBelow(w.root, name)
}

// inside is where in the folder a path of configuration in the folder at leads; "" outside.
func (w *walk) inside(at, p string) string {
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

func (w *walk) read(name string) ([]byte, error) {
	fd, err := sys.OpenAcross(w.root, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
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
func (w *walk) links(dir *os.File, rel string, depth int) error {
	w.seen = 0
	return w.linksBelow(dir, rel, depth)
}

func (w *walk) linksBelow(dir *os.File, rel string, depth int) error {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	entries, _, err := w.entries(dir, depth, func(e fs.DirEntry) bool {
		var st unix.Statx_t
		err := unix.Statx(int(dir.Fd()), e.Name(), unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT,
			unix.STATX_INO|unix.STATX_NLINK, &st)
		return err == nil && e.Type().IsRegular() && st.Nlink > 1 &&
			w.linked[inode{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino}]
	})
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			if err := w.coverBelow(int(dir.Fd()), e.Name()); err != nil {
				return fmt.Errorf("guard %s: %w", path.Join(rel, e.Name()), err)
			}
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
