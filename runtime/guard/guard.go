// Package guard keeps sandboxes from writing what programs of their users' take instructions from, in folders of the
// host's that they may write. internal/guard has the names as a table; runtime/DESIGN.md, "The guard of a folder", says
// how they are kept and why so.
//
// The guards of a sandbox (For) are made with it, and again for one that the next hutchd takes over. Cover mounts what
// is there over itself, once, before the first command. What is not there PID 1 does not make (Guest), or it is
// reported behind each command (Look). They end with the mounts: there is nothing to close.
//
// Which guards there are, and what Cover has found, does not change once the sandbox runs. What was reported is under
// the lock of each guard, which is held over looks at the folder, and over no call into another package's state: PID 1
// is asked before it is taken.
package guard

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	table "github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Guest is PID 1 of a sandbox, which makes names in the place of commands.
type Guest interface {
	// Made lists the repositories that were made since it was last asked; more says that there were others.
	Made(ctx context.Context) (paths []string, more bool, err error)
}

// Folders are the guarded folders of a sandbox. Its methods may be called from any goroutine, but Cover, which comes
// first.
type Folders []*folder

// folder is one of them.
type folder struct {
	at     string // where the folder is mounted for hutch-launch
	target string // where it is inside
	mount  api.Mount
	set    *table.Set
	// refuses says that the sandbox cannot make those that are not there.
	refuses bool

	// named are names that configuration of repositories in the folder names: hooks folders, further configuration.
	named []string
	// unseen is how many folders could not be looked into for names that are there.
	unseen int

	mu       sync.Mutex
	told     map[string]bool
	top      []string // names that are, or may be, at the top of the folder
	reported []*table.Row
	made     madeRepositories    // to be reported
	changed  unix.StatxTimestamp // when the folder's names had changed as they were read
}

// For are the guards of a sandbox that has these folders, mounted in their order below the folder at.
func For(mounts []api.Mount, at string) (guards Folders) {
	for i, m := range mounts {
		if set := setOf(&m); !set.Empty() {
			guards = append(guards, &folder{
				at: filepath.Join(at, strconv.Itoa(i)), target: m.Target, mount: m, set: set,
				refuses: m.RefusesNew(), told: map[string]bool{},
			})
		}
	}
	return guards
}

// setOf is what is guarded in a folder of the host's; nil where nothing is.
func setOf(m *api.Mount) *table.Set {
	if !m.Guards() {
		return nil
	}
	return table.New(m.Guard, m.Unguarded)
}

// over is the guard of the innermost folder that name lies in, and where in it; nil without one.
func (l Folders) over(name string) (over *folder, rel string) {
	for _, g := range l {
		if r, ok := below(name, g.target); ok && (over == nil || len(g.target) > len(over.target)) {
			over, rel = g, r
		}
	}
	return over, rel
}

// below is name relative to dir, when it is dir or lies below it.
func below(name, dir string) (string, bool) {
	name, dir = path.Clean(name), path.Clean(dir)
	if name == dir {
		return ".", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// RefusesNew reports whether guarded names that are not there cannot be made in some folder.
func RefusesNew(mounts []api.Mount) bool {
	return slices.ContainsFunc(mounts, func(m api.Mount) bool { return m.RefusesNew() })
}

// Names are what is guarded in the folder at target.
func Names(mounts []api.Mount, target string) []string {
	for _, m := range mounts {
		if m.Target == target {
			return setOf(&m).Names()
		}
	}
	return nil
}

// Guest is what PID 1 is not to make for commands of a sandbox with these folders, which are its guarded and other
// ones; nil when commands make names themselves.
func (l Folders) Guest(mounts []api.Mount) *guestapi.Guard {
	var g guestapi.Guard
	for _, of := range l {
		if !of.refuses {
			continue
		}
		root := guestapi.GuardRoot{Path: of.target, Own: slices.Concat(of.mount.Guard, of.named),
			Unguarded: of.mount.Unguarded}
		for _, m := range mounts { // volumes, and what is the sandbox's own
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
	fd, err := sys.OpenAcross(root, name, unix.O_PATH|unix.O_NOFOLLOW)
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
