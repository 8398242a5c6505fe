package sandbox

import (
	"cmp"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

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

// checkNested makes sure that the target of m exists where it lies in a host folder
// mounted before it: libcontainer would make it, in the caller's own folder, and
// follow symlinks that a sandbox has left there.
func (f *creation) checkNested(before []api.Mount, m api.Mount) error {
	for i := len(before) - 1; i >= 0; i-- { // the innermost first
		outer := before[i]
		if !within(m.Target, outer.Target) {
			continue
		}
		if outer.Mode == api.ModeOverlay || outer.Mode == api.ModeTmpfs {
			return nil // made in what is the sandbox's own
		}
		below := strings.TrimPrefix(m.Target, outer.Target+"/")
		err := existsBelow(f.mountDir(i), below)
		if err == nil {
			return nil
		}
		e := api.Errorf(api.InvalidArgument, "%s cannot be mounted on %s: %s in %s: %w", m.From(), m.Target, below,
			outer.From(), err)
		if outer.Volume != "" {
			return e.WithHint("make it first, in a sandbox that has the volume only; or mount it as overlay")
		}
		return e.WithHint("make it first: mkdir -p %s; or mount %s as overlay", filepath.Join(outer.Source, below),
			outer.Source)
	}
	return nil
}

// mountDir is where the host folder with this index is mounted for hutch-launch.
func (f *creation) mountDir(i int) string { return filepath.Join(f.s.dir, "mnt", strconv.Itoa(i)) }

// existsBelow looks for a file or folder below dir without following symlinks.
func existsBelow(dir, name string) error {
	root, err := openPath(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return errors.New("neither a folder nor a file")
	}
	return nil
}
