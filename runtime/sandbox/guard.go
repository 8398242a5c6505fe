package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// guard keeps a sandbox from writing what programs of its user's take instructions from, in a
// workspace in mode rw. See DESIGN.md, "The guard of a workspace".
type guard struct {
	at    string   // where the workspace is mounted for hutch-launch
	names []string // below it
	// refuses says that the sandbox can not make those that are not there.
	refuses bool

	mu   sync.Mutex
	told map[string]bool
}

// guardOf is the guard that sp asks for; nil without one. mounts is the sandbox's folder of them.
func guardOf(sp *api.Spec, mounts string) (*guard, error) {
	names := sp.Workspace.Guarded()
	if len(names) == 0 {
		return nil, nil
	}
	wanted, err := inOrder(hostFolders(sp))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(wanted, func(m api.Mount) bool { return m.Target == workspaceTarget })
	return &guard{at: filepath.Join(mounts, strconv.Itoa(i)), names: names, refuses: sp.Workspace.RefusesNew(), told: map[string]bool{}}, nil
}

// guest is what PID 1 is not to make for commands; nil when they make names themselves.
func (f *creation) guest() *guestapi.Guard {
	switch {
	case f.guarded:
		return &guestapi.Guard{Root: workspaceTarget, Names: api.DefaultGuarded()}
	case f.req.Spec.Workspace.RefusesNew():
		return &guestapi.Guard{Root: workspaceTarget, Names: f.s.guard.names}
	}
	return nil
}

// initArg is the argument of PID 1: what it has to watch from the start.
func (f *creation) initArg() string {
	var args []string
	if f.req.Debug {
		args = append(args, guestapi.ArgFiles)
	}
	if f.guarded || f.req.Spec.Workspace.RefusesNew() {
		args = append(args, guestapi.ArgMakes)
	}
	if f.m.cfg.Host.pretendsIDs(f.req.Spec.IDs) {
		args = append(args, guestapi.ArgIDs)
	}
	return strings.Join(args, guestapi.ArgAnd)
}

// settleGuardNew decides what api.GuardAuto is here, and refuses a guard that this kernel can not keep.
func (h *Host) settleGuardNew(sp *api.Spec) error {
	if sp.Workspace.RefusesNew() {
		return h.checkGuardNew()
	}
	if len(sp.Workspace.Guarded()) == 0 || sp.Workspace.GuardNew == api.GuardTell {
		return nil
	}
	w := *sp.Workspace // the caller's
	w.GuardNew = api.GuardRefuse
	if h.noGuardNew(sp) != "" {
		w.GuardNew = api.GuardTell
	}
	sp.Workspace = &w
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

func (h *Host) checkGuardNew() error {
	if h.LandlockABI > 0 {
		return nil
	}
	return api.Errorf(api.Unavailable, "workspace.guard_new: refuse takes a Landlock domain, and there is none here: %s", h.LandlockReason).
		WithField("workspace.guard_new").WithHint("use tell, which tells of such names behind each command; or mode overlay, where what is applied is looked at before")
}

// addGuardNew tells of that guard. PID 1 does not get ready without.
func (h *Host) addGuardNew(iso *api.Isolation, sp *api.Spec) {
	w := api.Wall{Name: "workspace guard", Status: "yes", Detail: "guarded names that are not there can not be made: PID 1 makes what commands make in the workspace"}
	switch {
	case len(sp.Workspace.Guarded()) == 0:
		return
	case !sp.Workspace.RefusesNew():
		w.Status, w.Detail = "no", "guarded names that are not there can be made, and are told of: "+cmp.Or(h.noGuardNew(sp), "as was asked for")
	}
	iso.Walls = append(iso.Walls, w)
}

// cover mounts each name that there is over itself, read-only, and the folders above it over
// themselves, because what nothing is mounted on can be renamed. The mounts are below that of the
// workspace: they come and go with it, and into the sandbox, where they are locked.
func (g *guard) cover() error {
	root, err := openPath(g.at)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range g.names {
		if err := coverBelow(int(root.Fd()), name); err != nil {
			return fmt.Errorf("guard %s: %w", name, err)
		}
	}
	return nil
}

func coverBelow(root int, name string) error {
	parts := strings.Split(name, "/")
	for i := range parts {
		dir := i < len(parts)-1
		fd, st, err := openBelow(root, path.Join(parts[:i+1]...))
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP):
			return nil // told of when there is one: unguarded
		case err != nil:
			return err
		}
		kind := st.Mode & unix.S_IFMT
		if dir && kind == unix.S_IFREG { // such as .git of a worktree, which says where the folder is
			dir = false
			parts = parts[:i+1]
		}
		if kind == unix.S_IFDIR || kind == unix.S_IFREG {
			err = overItself(fd, !dir, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0)
		}
		_ = unix.Close(fd)
		if err != nil || !dir {
			return err
		}
	}
	return nil
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

// lookUnguarded tells what of a workspace's guard has turned up, behind a command.
func (m *Manager) lookUnguarded(s *Sandbox, exec string) []api.Unguarded {
	found := s.guard.look()
	for _, u := range found {
		m.emit(api.EventUnguarded, s, exec, u)
	}
	return found
}

// look returns the names that are there and not guarded, each once.
func (g *guard) look() []api.Unguarded {
	if g == nil {
		return nil
	}
	root, err := openPath(g.at)
	if err != nil {
		return nil // it is being removed
	}
	defer root.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []api.Unguarded
	for _, name := range g.names {
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
		g.told[name] = true
		found = append(found, api.Unguarded{
			Path: path.Join(workspaceTarget, name), Why: why + ", so the sandbox can write it",
			Hint: fmt.Sprintf("look at it before a program of yours does; --unguard %s, if it may", name),
		})
	}
	return found
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
