package supervisor

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Rules say where commands make names themselves, and which are not made at all.
type Rules struct {
	roots []guardRoot

	mu     sync.Mutex
	free   map[string]bool   // folders of / in which the domain has the right
	mounts map[uint64]string // the sandbox's, and where they are
	// repositories are mounts of folders that git took for repositories before the first command: hutchd mounts each
	// over itself.
	repositories map[uint64]bool
}

// guardRoot is a folder with a guard.
type guardRoot struct {
	path   string
	set    *guard.Set
	except []string // mounts in it that have no guard
}

func (root *guardRoot) excepts(p string) bool {
	return slices.ContainsFunc(root.except, func(at string) bool { return p == at || strings.HasPrefix(p, at+"/") })
}

// NewRules are those of a guard.
func NewRules(g *guestapi.Guard) *Rules {
	r := &Rules{}
	for _, root := range g.Roots {
		r.roots = append(r.roots, guardRoot{path: path.Clean(root.Path), set: guard.New(root.Own, root.Unguarded),
			except: root.Except})
	}
	return r
}

// Tops are the folders of / that hold one with a guard.
func (r *Rules) Tops() []string {
	var tops []string
	for _, root := range r.roots {
		first, _, _ := strings.Cut(strings.TrimPrefix(root.path, "/"), "/")
		tops = append(tops, first)
	}
	return tops
}

// Begin is called once, before the first command: from now on there is a domain.
func (r *Rules) Begin(free []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free, r.repositories = map[string]bool{}, map[uint64]bool{}
	for _, name := range free {
		r.free[name] = true
	}
	if err := r.readMounts(); err != nil {
		return err
	}
	for id, at := range r.mounts {
		if slices.ContainsFunc(r.roots, func(root guardRoot) bool {
			return at == root.path ||
				strings.HasPrefix(at, root.path+"/")
		}) {
			var st unix.Stat_t // each repository has a HEAD, whatever else of it is elsewhere for the moment
			r.repositories[id] = unix.Lstat(path.Join(at, "HEAD"), &st) == nil
		}
	}
	return nil
}

// readMounts reads which mounts there are. The caller holds r.mu.
func (r *Rules) readMounts() error {
	list, err := readMounts()
	if err != nil {
		return err
	}
	r.mounts = map[uint64]string{}
	for _, m := range list {
		r.mounts[m.id] = m.at
	}
	return nil
}

// mounted is a mount of the sandbox's.
type mounted struct {
	id       uint64
	at, kind string // where, and of which type of file system
}

// readMounts reads which mounts there are.
func readMounts() ([]mounted, error) {
	info, err := readAllOwn("/proc/self/mountinfo") // which may be the listening thread itself
	if err != nil {
		return nil, err
	}
	var list []mounted
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line) // proc_pid_mountinfo(5)
		if len(fields) < 5 {
			return nil, errors.New("a line of mountinfo has no mount point")
		}
		m := mounted{at: unescape(fields[4])}
		if m.id, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
			return nil, err
		}
		if i := slices.Index(fields, "-"); i > 0 && i+1 < len(fields) { // behind the optional fields
			m.kind = fields[i+1]
		}
		list = append(list, m)
	}
	return list, nil
}

// holdsMount reports whether something is mounted below a path. Who renamed such a folder would move a guarded folder
// to where its names are not guarded.
func (r *Rules) holdsMount(s *spot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.mounts {
		if strings.HasPrefix(at, path.Join(s.dir, s.name)+"/") {
			return true
		}
	}
	return false
}

// unescape is a path of mountinfo as it is: space, tab, newline and backslash are three octal digits there.
func unescape(s string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+4 > len(s) {
			break
		}
		n, err := strconv.ParseUint(s[i+1:i+4], 8, 8)
		if err != nil {
			break
		}
		b.WriteString(s[:i])
		b.WriteByte(byte(n))
		s = s[i+4:]
	}
	b.WriteString(s)
	return b.String()
}

// mountOf is the mount on which fd is.
func mountOf(fd int) (uint64, bool) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
}

// ours reports whether fd is on a mount of the sandbox's: nothing is made by what came from elsewhere.
func (r *Rules) ours(fd int) bool {
	id, ok := mountOf(fd)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.mounts[id]
	return ok && known
}

// inRepository is where in the folder of a repository that was there p is, which lies in the folder fd; false where it
// is in none. How deep that is the mount tells: folders above may have other names now.
func (r *Rules) inRepository(fd int, p string) (rel string, ok bool) {
	id, ok := mountOf(fd)
	r.mu.Lock()
	known := r.repositories[id]
	r.mu.Unlock()
	if !ok || !known {
		return "", false
	}
	parts := strings.Split(strings.TrimPrefix(p, "/"), "/")
	at, depth := fd, 1
	defer func() {
		if at != fd {
			_ = unix.Close(at)
		}
	}()
	for ; depth < len(parts); depth++ {
		var st unix.Statx_t
		if err := unix.Statx(at, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st); err != nil {
			break
		}
		if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
			return path.Join(parts[len(parts)-depth:]...), true
		}
		above, err := sys.Marked(ownCall).
			Openat2(at, "..", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC})
		if err != nil {
			break
		}
		if at != fd {
			_ = unix.Close(at)
		}
		at = above
	}
	return p, true // it cannot be told: all of it may be
}

// native reports whether the domain has the right to make names in dir.
func (r *Rules) native(dir string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free[first]
}

// changed is told about a name that is made: the right is that of a folder, not of its name.
func (r *Rules) changed(s *spot) {
	if s.dir == "/" {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.free, s.name)
	}
}

// refuses reports whether s is not to be made: it is guarded, below what is, or above it. A folder above may be made
// empty, but .git, which nobody wants without what is guarded in it.
func (r *Rules) refuses(s *spot, emptyFolder bool) bool {
	p := path.Join(s.dir, s.name)
	return slices.ContainsFunc(r.roots, func(root guardRoot) bool {
		rel, ok := strings.CutPrefix(p, root.path+"/")
		if !ok {
			return false
		}
		if root.excepts(p) {
			return false
		}
		in, ok := r.inRepository(s.fd, p)
		if ok {
			if _, refused := root.set.IsOwn(rel, emptyFolder); refused {
				return true
			}
			if _, refused := root.set.Repository(in, emptyFolder); refused {
				return true
			}
			if !strings.Contains(in, "/") { // git's own HEAD
				return false
			}
		} else if _, refused := root.set.Path(rel, emptyFolder); refused {
			return true
		}
		return root.set.Completes(s.name, func(name string) bool {
			return (&spot{fd: s.fd, name: name}).there() != nil
		})
	})
}

// refusesLink reports whether a symbolic link is not to be made: it would be a way into a folder with other people's
// packages, where names are not guarded that are guarded elsewhere.
func (r *Rules) refusesLink(s *spot, to string) bool {
	p := path.Join(s.dir, s.name)
	return guard.InDependency(to) && slices.ContainsFunc(r.roots, func(root guardRoot) bool {
		rel, ok := strings.CutPrefix(p, root.path+"/")
		return ok && !root.excepts(p) && !guard.InDependency(rel)
	})
}

// made is the folder that has become a repository by s, which has been made and was not there; "" is none that is to be
// reported.
func (r *Rules) made(s *spot) string {
	at := s.dir
	switch {
	case strings.EqualFold(s.name, ".git"):
		at = path.Join(s.dir, s.name)
	case !guard.MakesRepository(s.name, func(name string) bool { return (&spot{fd: s.fd, name: name}).there() != nil }):
		return ""
	}
	if !slices.ContainsFunc(r.roots, func(root guardRoot) bool {
		return (at == root.path || strings.HasPrefix(at, root.path+"/")) && root.set.NewRepositories()
	}) {
		return ""
	}
	if _, ok := r.inRepository(s.fd, path.Join(s.dir, s.name)); ok {
		return ""
	}
	return at
}

// crosses reports whether a folder, or a link to one, that is renamed comes out of one with other people's packages,
// where it may hold names that are guarded elsewhere.
func (r *Rules) crosses(from, to *spot) bool {
	st := from.there()
	if st == nil || st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return false
	}
	a, b := path.Join(from.dir, from.name), path.Join(to.dir, to.name)
	return slices.ContainsFunc(r.roots, func(root guardRoot) bool {
		relA, okA := strings.CutPrefix(a, root.path+"/")
		relB, okB := strings.CutPrefix(b, root.path+"/")
		return okA && okB && guard.InDependency(relA) && !guard.InDependency(relB)
	})
}

// Check is EROFS for a folder that PID 1 is to make for itself and commands may not make. A nil r refuses nothing.
func (r *Rules) Check(at int, name string) error {
	if r == nil {
		return nil
	}
	dir, err := readlink(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(at))
	if err == nil && r.refuses(&spot{fd: at, dir: dir, name: name}, true) {
		err = unix.EROFS
	}
	return err
}
