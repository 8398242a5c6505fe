package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// folderGuard keeps a sandbox from writing what programs of its user's take instructions from, in a folder of the
// host's in mode rw. See runtime/DESIGN.md, "The guard of a folder".
type folderGuard struct {
	at     string // where the folder is mounted for hutch-launch
	target string // where it is inside
	mount  api.Mount
	set    *guard.Set
	// refuses says that the sandbox cannot make those that are not there.
	refuses bool

	// named are names that configuration of repositories in the folder names: hooks folders, further configuration.
	named []string
	// unseen is how many folders could not be looked into for names that are there.
	unseen int

	mu       sync.Mutex
	told     map[string]bool
	top      []string // names that are, or may be, at the top of the folder
	reported []*guard.Row
	made     madeRepositories    // to be reported
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
				at: filepath.Join(mounts, strconv.Itoa(i)), target: m.Target, mount: m, set: set,
				refuses: m.RefusesNew(), told: map[string]bool{},
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

// refusesNew reports whether guarded names that are not there cannot be made in some folder of sp.
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

// defaultGuard is what PID 1 of a sandbox that is launched ahead does not make: the guard of a workspace for which
// nothing is said about it.
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
		root := guestapi.GuardRoot{Path: of.target, Own: slices.Concat(of.mount.Guard, of.named),
			Unguarded: of.mount.Unguarded}
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

// guardClaimed tells PID 1 of a sandbox that was launched ahead what is guarded now, if that is not what it was set up
// with.
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
	} else if f.moves || overlays(&f.req.Spec) {
		args = append(args, guestapi.ArgMoves)
	}
	if f.m.cfg.Host.emulatesIDs(f.req.Spec.IDs) {
		args = append(args, guestapi.ArgIDs)
	}
	return strings.Join(args, guestapi.ArgAnd)
}

// overlays reports whether PID 1 moves folders for commands: in overlays of folders, unless it is under a profile that
// may refuse what that takes.
func overlays(sp *api.Spec) bool {
	return sp.SeccompProfile == "" &&
		slices.ContainsFunc(hostFolders(sp), func(m api.Mount) bool { return m.Mode == api.ModeOverlay })
}

// settleGuardNew decides what api.GuardAuto is here, and refuses a guard that this kernel cannot keep.
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
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		w := *w // the caller's
		var err error
		if w.GuardNew, err = settle("workspace", &hostFolders(sp)[0]); err != nil {
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

// noGuardNew is why names that are not there cannot be refused to a sandbox; "" when they can.
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
	return api.Errorf(api.Unavailable, "%s.guard_new: refuse takes a Landlock domain, and there is none here: %s",
		field, h.LandlockReason).
		WithField(field + ".guard_new").
		WithHint("use tell, which tells of such names behind each command; or mode overlay, where what is applied is looked at before")
}

// addGuardNew tells of the guards. PID 1 does not get ready without.
func (h *Host) addGuardNew(iso *api.Isolation, sp *api.Spec, guards []*folderGuard) {
	if len(guards) == 0 {
		return
	}
	w := api.Wall{Name: "workspace guard", Status: "yes",
		Detail: "guarded names that are not there cannot be made: PID 1 makes what commands make in the folder"}
	for _, g := range guards {
		switch {
		case !g.refuses:
			w.Status = "no"
			w.Detail = "guarded names that are not there can be made, and are told about at the top of the folder: " +
				cmp.Or(h.noGuardNew(sp), "as was asked for")
		case g.unseen > 0 && w.Status == "yes":
			w.Detail += fmt.Sprintf("; %d folders of %s cannot be looked into", g.unseen, g.target)
		}
	}
	iso.Walls = append(iso.Walls, w)
}

// overItself mounts what fd is over itself. What is a mount already only becomes read-only if it is to be.
func overItself(fd int, readOnly, mounted bool) error {
	tree := fd
	if !mounted {
		var err error
		if tree, err = unix.OpenTree(fd, "",
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err != nil {
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
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT,
		unix.STATX_TYPE|unix.STATX_INO|unix.STATX_NLINK, st); err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, st, nil
}
