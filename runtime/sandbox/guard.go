package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// folderGuard keeps a sandbox from writing what programs of its user's take instructions from, in a folder of the host's in
// mode rw. See runtime/DESIGN.md, "The guard of a folder".
type folderGuard struct {
	at     string // where the folder is mounted for hutch-launch
	target string // where it is inside
	mount  api.Mount
	set    *guard.Set
	// refuses says that the sandbox can not make those that are not there.
	refuses bool

	// named are names that configuration of repositories in the folder names: hooks folders, further configuration.
	named []string
	// unseen is how many folders could not be looked into for names that are there.
	unseen int

	mu       sync.Mutex
	told     map[string]bool
	top      []string // names that are, or may be, at the top of the folder
	reported []*guard.Row
	made     []api.Unguarded     // to be told of
	changed  unix.StatxTimestamp // when the folder's names had changed as they were read
}

// guardsOf are the guards that sp asks for. mounts is the sandbox's folder of them.
func guardsOf(sp *api.Spec, mounts string) ([]*folderGuard, error) {
	wanted, err := inOrder(hostFolders(sp))
	if err != nil {
		return nil, err
	}
	var guards []*folderGuard
	for i, m := range wanted {
		if set := guardSet(&m); !set.Empty() {
			guards = append(guards, &folderGuard{
				at: filepath.Join(mounts, strconv.Itoa(i)), target: m.Target, mount: m, set: set, refuses: m.RefusesNew(), told: map[string]bool{},
			})
		}
	}
	return guards, nil
}

// guardSet is what is guarded in a folder of the host's; nil where nothing is.
func guardSet(m *api.Mount) *guard.Set {
	if !m.Guards() {
		return nil
	}
	return guard.New(m.Guard, m.Unguarded)
}

// guardAt is the guard of the folder that is mounted at target; nil without one.
func (s *Sandbox) guardAt(target string) *folderGuard {
	if i := slices.IndexFunc(s.guards, func(g *folderGuard) bool { return g.target == path.Clean(target) }); i >= 0 {
		return s.guards[i]
	}
	return nil
}

// guardOver is the guard of the innermost folder that name lies in, and where in it; nil without one.
func (s *Sandbox) guardOver(name string) (over *folderGuard, rel string) {
	for _, g := range s.guards {
		if r, ok := below(name, g.target); ok && (over == nil || len(g.target) > len(over.target)) {
			over, rel = g, r
		}
	}
	return over, rel
}

// refusesNew reports whether guarded names that are not there can not be made in some folder of sp.
func refusesNew(sp *api.Spec) bool {
	return slices.ContainsFunc(hostFolders(sp), func(m api.Mount) bool { return m.RefusesNew() })
}

// guardedNames are what is guarded in the folder at target.
func guardedNames(sp *api.Spec, target string) []string {
	for _, m := range hostFolders(sp) {
		if m.Target == target {
			return guardSet(&m).Names()
		}
	}
	return nil
}

// defaultGuard is what PID 1 of a sandbox that is launched ahead does not make: the guard of a workspace for which nothing is said about it.
var defaultGuard = guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: workspaceTarget}}}

// guest is what PID 1 is not to make for commands; nil when they make names themselves.
func (f *creation) guest() *guestapi.Guard {
	if f.guarded {
		return &defaultGuard
	}
	var g guestapi.Guard
	for _, of := range f.s.guards {
		if !of.refuses {
			continue
		}
		root := guestapi.GuardRoot{Path: of.target, Own: slices.Concat(of.mount.Guard, of.named), Unguarded: of.mount.Unguarded}
		for _, m := range hostFolders(&f.req.Spec) { // volumes, and what is the sandbox's own
			if at := path.Clean(m.Target); !m.Guards() && strings.HasPrefix(at, of.target+"/") {
				root.Except = append(root.Except, at)
			}
		}
		g.Roots = append(g.Roots, root)
	}
	if len(g.Roots) == 0 {
		return nil
	}
	return &g
}

// guardClaimed tells PID 1 of a sandbox that was launched ahead what is guarded now, if that is not what it was set up with.
func (f *creation) guardClaimed(ctx context.Context) error {
	g := f.guest()
	if g == nil || reflect.DeepEqual(g, &defaultGuard) {
		return nil
	}
	return f.s.guest.Guard(ctx, g)
}

// initArg is the argument of PID 1: what it has to watch from the start.
func (f *creation) initArg() string {
	var args []string
	if f.req.Debug {
		args = append(args, guestapi.ArgFiles)
	}
	if f.guarded || refusesNew(&f.req.Spec) {
		args = append(args, guestapi.ArgMakes)
	}
	if f.m.cfg.Host.pretendsIDs(f.req.Spec.IDs) {
		args = append(args, guestapi.ArgIDs)
	}
	return strings.Join(args, guestapi.ArgAnd)
}

// settleGuardNew decides what api.GuardAuto is here, and refuses a guard that this kernel can not keep.
func (h *Host) settleGuardNew(sp *api.Spec) error {
	settle := func(field string, m *api.Mount) (api.GuardNew, error) {
		for _, name := range m.Unguarded {
			if !guard.Known(name) {
				return "", api.Errorf(api.InvalidArgument, "%s.unguarded: %q is not guarded", field, name).
					WithField(field + ".unguarded").WithHint("`hutch config guard` shows all names that are")
			}
		}
		switch {
		case m.RefusesNew():
			return m.GuardNew, h.checkGuardNew(field)
		case !m.Guards() || m.GuardNew == api.GuardTell:
			return m.GuardNew, nil
		case h.noGuardNew(sp) != "":
			return api.GuardTell, nil
		}
		return api.GuardRefuse, nil
	}
	if folders := hostFolders(sp); len(folders) > len(sp.Mounts) {
		w := *sp.Workspace // the caller's
		var err error
		if w.GuardNew, err = settle("workspace", &folders[0]); err != nil {
			return err
		}
		sp.Workspace = &w
	}
	sp.Mounts = slices.Clone(sp.Mounts) // the caller's
	for i := range sp.Mounts {
		var err error
		if sp.Mounts[i].GuardNew, err = settle(fmt.Sprintf("mounts[%d]", i), &sp.Mounts[i]); err != nil {
			return err
		}
	}
	return nil
}

// noGuardNew is why names that are not there can not be refused to a sandbox; "" when they can.
func (h *Host) noGuardNew(sp *api.Spec) string {
	switch {
	case h.LandlockABI == 0:
		return h.LandlockReason
	case sp.Landlock == api.LandlockOff:
		return "landlock is off, as was asked for"
	case sp.SeccompProfile != "":
		return "PID 1 is under the custom seccomp profile, which may refuse what it takes"
	}
	return ""
}

func (h *Host) checkGuardNew(field string) error {
	if h.LandlockABI > 0 {
		return nil
	}
	return api.Errorf(api.Unavailable, "%s.guard_new: refuse takes a Landlock domain, and there is none here: %s", field, h.LandlockReason).
		WithField(field + ".guard_new").WithHint("use tell, which tells of such names behind each command; or mode overlay, where what is applied is looked at before")
}

// addGuardNew tells of the guards. PID 1 does not get ready without.
func (h *Host) addGuardNew(iso *api.Isolation, sp *api.Spec, guards []*folderGuard) {
	if len(guards) == 0 {
		return
	}
	w := api.Wall{Name: "workspace guard", Status: "yes", Detail: "guarded names that are not there can not be made: PID 1 makes what commands make in the folder"}
	for _, g := range guards {
		switch {
		case !g.refuses:
			w.Status = "no"
			w.Detail = "guarded names that are not there can be made, and are told of at the top of the folder: " + cmp.Or(h.noGuardNew(sp), "as was asked for")
		case g.unseen > 0 && w.Status == "yes":
			w.Detail += fmt.Sprintf("; %d folders of %s can not be looked into", g.unseen, g.target)
		}
	}
	iso.Walls = append(iso.Walls, w)
}

// overItself mounts what fd is over itself. What is a mount already only becomes read-only if it is to be.
func overItself(fd int, readOnly, mounted bool) error {
	tree := fd
	if !mounted {
		var err error
		if tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err != nil {
			return fmt.Errorf("open_tree: %w", err)
		}
		defer unix.Close(tree)
	}
	if readOnly {
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
			return fmt.Errorf("mount_setattr: %w", err)
		}
	}
	if mounted {
		return nil
	}
	if err := unix.MoveMount(tree, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// openBelow opens name below root without following symlinks. ENOTDIR is ENOENT.
func openBelow(root int, name string) (int, *unix.Statx_t, error) {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.ENOENT
	}
	if err != nil {
		return -1, nil, err
	}
	st := &unix.Statx_t{}
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, st); err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, st, nil
}

// lookUnguarded tells what of the guards has turned up, behind a command.
func (m *Manager) lookUnguarded(s *Sandbox, exec string) []api.Unguarded {
	var found []api.Unguarded
	for _, g := range s.guards {
		found = append(found, g.look()...)
	}
	for _, u := range found {
		m.emit(api.EventUnguarded, s, exec, u)
	}
	return found
}

// repository is told that a repository has been made at rel. PID 1 may lie: there is a bound.
func (g *folderGuard) repository(rel string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told[rel] || len(g.told) >= maxTold {
		return
	}
	g.told[rel] = true
	g.made = append(g.made, api.Unguarded{
		Path: path.Join(g.target, rel), Why: "it is a new repository: git takes instructions from its configuration and hooks",
		Hint: "look at both before you use git, or a prompt that asks git, in there",
	})
}

// look returns the names at the top of the folder that are there and not guarded, each once.
func (g *folderGuard) look() []api.Unguarded {
	root, err := os.Open(g.at)
	if err != nil {
		return nil // it is being removed
	}
	defer root.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.made
	g.made = nil
	if !g.list(root) {
		return found
	}
	for _, name := range g.top {
		// The folder above, where that is no folder: it says where the real one is.
		name = cmp.Or(fileAbove(int(root.Fd()), name), name)
		if g.told[name] {
			continue
		}
		fd, st, err := openBelow(int(root.Fd()), name)
		why := "it is new, or the host has replaced it"
		if g.refuses {
			why = "the host has made or replaced it"
		}
		switch {
		case errors.Is(err, unix.ELOOP):
			why = "it is, or lies behind, a symlink"
		case err != nil:
			continue
		default:
			_ = unix.Close(fd)
			switch {
			case st.Mode&unix.S_IFMT == unix.S_IFLNK:
				why = "it is, or lies behind, a symlink"
			case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
				continue
			}
		}
		if len(g.told) >= maxTold {
			break
		}
		g.told[name] = true
		found = append(found, api.Unguarded{
			Path: path.Join(g.target, name), Why: why + ", so the sandbox can write it",
			Hint: fmt.Sprintf("look at it before a program of yours does; --unguard %s, if it may", g.called(name)),
		})
	}
	return append(found, g.reports(int(root.Fd()))...)
}

// reports are names that may be made, and have been. The caller holds g.mu.
func (g *folderGuard) reports(root int) (found []api.Unguarded) {
	for _, r := range g.reported {
		if g.told[r.Name] {
			continue
		}
		fd, _, err := openBelow(root, r.Name)
		if err != nil {
			continue
		}
		_ = unix.Close(fd)
		g.told[r.Name] = true
		found = append(found, api.Unguarded{
			Path: path.Join(g.target, r.Name), Why: fmt.Sprintf("it is new, and %s takes instructions from it (%s)", r.Who, r.When),
			Hint: "look at it before a program of yours does",
		})
	}
	return found
}

// What a look at the top of a folder takes at most, behind each command: names, and of them those that are looked at and told of. It is for
// people who want to know; what must not be made is not made.
const (
	maxTopNames = 100_000
	maxTold     = 1000
)

// list finds what of the guard can be in the folder by the names that it has, which it reads again when they have changed. The caller holds
// g.mu. It is false where the folder can not be read, or is none.
func (g *folderGuard) list(root *os.File) bool {
	var st unix.Statx_t
	err := unix.Statx(int(root.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_CTIME|unix.STATX_MTIME, &st)
	if err != nil {
		return false
	}
	// A clock of the kernel's goes in steps: what changed just now may change again within the same one.
	if now := time.Now().Unix(); st.Ctime == g.changed && st.Mtime.Sec < now-1 && st.Ctime.Sec < now-1 {
		return true
	}
	g.changed, g.top, g.reported = st.Ctime, append(g.set.Own(), g.named...), nil
	there := map[string]bool{} // of what is reported
	for i := range guard.Rows {
		if first, _, _ := strings.Cut(guard.Rows[i].Name, "/"); guard.Rows[i].Report {
			there[first] = false
		}
	}
	for seen := 0; seen < maxTopNames; {
		entries, err := root.Readdirnames(1024)
		seen += len(entries)
		for _, e := range entries {
			if len(g.top) < maxTold {
				g.top = append(g.top, g.set.Candidates("", e)...)
			}
			if _, ok := there[e]; ok {
				there[e] = true
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false
		}
	}
	slices.Sort(g.top)
	g.top = slices.Compact(g.top)
	for i := range guard.Rows {
		if first, _, _ := strings.Cut(guard.Rows[i].Name, "/"); guard.Rows[i].Report && there[first] {
			g.reported = append(g.reported, &guard.Rows[i])
		}
	}
	return true
}

// explain says why a name of the folder can not be made or written; false where the guard is not why.
func (g *folderGuard) explain(rel string) (fileReason, bool) {
	for _, name := range g.named {
		if _, ok := below(rel, name); ok {
			return fileReason{"mount", guardRule, name + " is guarded: the configuration of a repository names it", "--unguard all"}, true
		}
	}
	m, ok := g.set.Path(rel, false)
	if !ok {
		if m, ok = g.inRepository(rel); ok && m.Name != guard.NewRepository {
			m.Name = ".git"
		}
	}
	if slices.Contains(g.mount.Guard, m.Name) {
		return fileReason{"mount", guardRule, m.Path + " is guarded, as was asked for", "leave out --guard " + m.Name}, ok
	}
	switch {
	case !ok:
		return fileReason{}, false
	case m.Name == guard.NewRepository:
		return fileReason{
			"mount", guardRule, "it would make a repository, in which git takes instructions from its configuration", "--unguard " + m.Name + ", or :overlay",
		}, true
	case m.Above:
		var held []string
		for _, name := range g.set.Names() {
			if strings.HasPrefix(name, path.Base(m.Path)+"/") {
				held = append(held, name)
			}
		}
		return fileReason{"mount", guardRule, "it holds what is guarded: " + strings.Join(held, ", "), "--unguard " + cmp.Or(strings.Join(held, " --unguard "), m.Name)}, true
	}
	return fileReason{"mount", guardRule, m.Path + " is guarded: programs of yours take instructions from it", "--unguard " + m.Name}, true
}

// inRepository looks for a folder of a repository above rel that has no name of its own, such as a bare one.
func (g *folderGuard) inRepository(rel string) (guard.Match, bool) {
	root, err := openPath(g.at)
	if err != nil {
		return guard.Match{}, false
	}
	defer root.Close()
	for dir, in := path.Dir(rel), path.Base(rel); ; dir, in = path.Dir(dir), path.Join(path.Base(dir), in) {
		has := func(name string) bool {
			fd, _, err := openBelow(int(root.Fd()), path.Join(dir, name))
			if err == nil {
				_ = unix.Close(fd)
			}
			return err == nil
		}
		if m, ok := g.set.Repository(in, false); ok && guard.Resembles(has) {
			return m, true
		}
		if !strings.Contains(in, "/") && g.set.Completes(in, has) {
			return guard.Match{Name: guard.NewRepository, Path: rel}, true
		}
		if dir == "." {
			return guard.Match{}, false
		}
	}
}

// called is how a guarded path is unguarded.
func (g *folderGuard) called(name string) string {
	if m, ok := g.set.Path(name, false); ok {
		return m.Name
	}
	return name
}

// fileAbove is the first folder of name that is a file; "" when none is.
func fileAbove(root int, name string) string {
	for i, c := range name {
		if c != '/' {
			continue
		}
		fd, st, err := openBelow(root, name[:i])
		if err != nil {
			return ""
		}
		_ = unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return name[:i]
		}
	}
	return ""
}
