package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
)

// Target is where the workspace is mounted.
const Target = "/workspace"

// Set is the folders of one sandbox. The zero value is for one of which nothing is known yet.
type Set struct {
	// Guards are of folders of the host's that it may write.
	Guards guard.Folders
	// IDs are of a sandbox that is stopped: what was mounted, by target.
	IDs map[string]ID

	foreign foreigners // what of others is in these and in overlays
	// applied is what of the workspace was brought into the user's folder. It is forgotten with hutchd: conflicts,
	// then.
	applied changes.Applied
}

// Adopt makes the guards of a sandbox that runs already. dir is its folder.
func (s *Set) Adopt(sp *api.Spec, dir string) error {
	sorted, err := Sorted(sp)
	s.Guards = guard.For(sorted, filepath.Join(dir, mounts))
	return err
}

// mounts is where the folders are mounted below the sandbox's own, mergedSuffix goes behind the name of a mount point
// that is an overlay's lower folder, and written is where the upper ones are.
const (
	mounts       = "mnt"
	mergedSuffix = ".merged"
	written      = "fs"
)

// At is where the folder of a number is mounted below dir, the sandbox's folder.
func At(dir string, number int) string { return filepath.Join(dir, mounts, strconv.Itoa(number)) }

// Dir is where commands start in a sandbox with a workspace; "" without one.
func Dir(sp *api.Spec) string {
	if sp.Workspace != nil && sp.Workspace.Mode != api.ModeNone {
		return Target
	}
	return ""
}

// inMemory are the folders that a sandbox with a root that is read-only can write all the same: hardly a program does
// without.
var inMemory = []string{"/tmp", "/var/tmp", "/run"}

// Of are the workspace, the volumes, and the other folders of the host's or in memory that sp asks for.
func Of(sp *api.Spec) (wanted []api.Mount) {
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		wanted = append(wanted, api.Mount{
			Source: w.Path, Target: Target, Mode: w.Mode, FD: w.FD, Guard: w.Guard, Unguarded: w.Unguarded,
			GuardNew: w.GuardNew,
		})
	}
	wanted = append(wanted, sp.Mounts...)
	for _, target := range inMemory {
		if sp.ReadOnly && !slices.ContainsFunc(wanted,
			func(m api.Mount) bool { return path.Clean(m.Target) == target }) {
			wanted = append(wanted, api.Mount{Target: target, Mode: api.ModeTmpfs})
		}
	}
	return wanted
}

// HasOverlay reports whether one of the folders is in mode overlay.
func HasOverlay(sp *api.Spec) bool {
	return slices.ContainsFunc(Of(sp), func(m api.Mount) bool { return m.Mode == api.ModeOverlay })
}

// Sorted are the folders that sp asks for, so that none hides another: in the order of their numbers. It refuses two on
// one target.
func Sorted(sp *api.Spec) ([]api.Mount, error) { return inOrder(Of(sp)) }

// inOrder sorts mounts so that none hides one that was asked for, and refuses two
// on one target.
func inOrder(mounts []api.Mount) ([]api.Mount, error) {
	sorted := slices.Clone(mounts)
	for i := range sorted {
		sorted[i].Target = path.Clean(sorted[i].Target)
	}
	slices.SortStableFunc(sorted, func(a, b api.Mount) int {
		return cmp.Compare(strings.Count(a.Target, "/"), strings.Count(b.Target, "/"))
	})
	seen := map[string]string{}
	for _, m := range sorted {
		if other, ok := seen[m.Target]; ok {
			return nil, api.Errorf(api.InvalidArgument, "%s and %s are both to be mounted on %s", other, m.From(),
				m.Target).
				WithField("mounts").WithHint("give each a target of its own")
		}
		seen[m.Target] = m.From()
	}
	return sorted, nil
}

// ID says which folder of the host's was mounted, as the sandbox saw it: through a mount that maps ids the owner is
// another than by its path.
type ID struct {
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	User uint32 `json:"uid"`
}

// Identify is the ID of the folder at a path, no link followed.
func Identify(at string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return ID{}, fmt.Errorf("look at a mount: %w", err)
	}
	return ID{st.Dev, st.Ino, st.Uid}, nil
}

// IDsNow says which folders of the host's a sandbox has mounted, whose folder is dir, by target.
func IDsNow(sp *api.Spec, dir string) (map[string]ID, error) {
	sorted, err := Sorted(sp)
	if err != nil {
		return nil, err
	}
	ids := map[string]ID{}
	for i, mt := range sorted {
		if !mt.OfHost() {
			continue
		}
		if ids[mt.Target], err = Identify(At(dir, i)); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Unmount unmounts what Attaching has mounted below dir, the folder of a sandbox with up to n folders. What is not
// there, or not mounted, is as good.
func (ws *Workspaces) Unmount(dir string, n int) error {
	var errs []error
	for i := n - 1; i >= 0; i-- {
		at := At(dir, i)
		for _, path := range []string{at + mergedSuffix, at} {
			err := ws.unmount(path)
			if !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// unmount detaches: an open file of a killed process can keep a mount busy for
// a moment, and nobody can reach it any more.
func (ws *Workspaces) unmount(at string) error {
	if err := ws.kernel.Unmount(at); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}

// within reports whether path is dir or below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// OpenPath opens what is at a path as a place (O_PATH), symlinks followed. Its errors are the caller's to see.
func OpenPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	e := &fs.PathError{Op: "open", Path: path, Err: err}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, api.Errorf(api.NotFound, "%w", e).WithHint("make the folder first, or correct the path")
	case errors.Is(err, unix.EACCES):
		return nil, api.Errorf(api.PermissionDenied, "%w", e).
			WithHint("the daemon runs as an ordinary user and must be able to walk the path; let the hutch command line mount it")
	}
	return nil, e
}
