package workspace

import (
	"fmt"
	"slices"

	"github.com/moby/sys/mountinfo"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Folders that several sandboxes write to. The guard of a sandbox covers what its folder held when the sandbox was
// made. A name that another sandbox may make there, because it does not guard it, would be an ordinary file to the
// first one: a repository of `--unguard git-new`, say, whose configuration it may then write. So all sandboxes of a
// daemon that write to a folder guard the same names of it.

// attachedFolder is where a folder of the host's is on its file system, by whatever name and mount it was reached.
type attachedFolder struct {
	major, minor int
	root         string
}

// checkShared refuses a folder that a sandbox which runs guards in another way. It comes after the folders are
// attached: of two creations at the same moment one at least sees the other's.
func (a *Attaching) checkShared(wanted []api.Mount) error {
	if !slices.ContainsFunc(wanted, func(m api.Mount) bool { return writesHost(&m) }) {
		return nil
	}
	attached := map[string]attachedFolder{}
	_, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		if within(i.Mountpoint, a.ws.host.Dir) {
			attached[i.Mountpoint] = attachedFolder{i.Major, i.Minor, i.Root}
		}
		return true, false
	})
	if err != nil {
		return fmt.Errorf("look for who else has the folder: %w", err)
	}
	for _, other := range a.ws.sandboxes.NotEnded() {
		theirs, err := Sorted(other.Spec())
		if err != nil || other.ID() == a.ID {
			continue
		}
		for i := range wanted {
			for j := range theirs {
				here, there := attached[At(a.Dir, i)], attached[At(other.Dir(), j)]
				if overlap(here, there) && writesHost(&wanted[i]) && writesHost(&theirs[j]) {
					if err := sameGuard(&wanted[i], &theirs[j], other.ID()); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// writesHost says that a sandbox writes to a folder of the host's.
func writesHost(m *api.Mount) bool { return m.Mode == api.ModeRW && m.Volume == "" }

// overlap says that two folders are one, or that one lies in the other.
func overlap(a, b attachedFolder) bool {
	return a.root != "" && b.root != "" && a.major == b.major && a.minor == b.minor &&
		(within(a.root, b.root) || within(b.root, a.root))
}

// sameGuard refuses a folder whose guard is another one than in a sandbox that has it already.
func sameGuard(m, theirs *api.Mount, other string) error {
	names, how := "", ""
	switch {
	case !m.Guards() && !theirs.Guards():
		return nil
	case !sameNames(m.Guard, theirs.Guard), !sameNames(m.Unguarded, theirs.Unguarded):
		names, how = "other names", "--guard and --unguard"
	case m.RefusesNew() != theirs.RefusesNew():
		names, how = "names that are not there yet", "--guard-new, --landlock and seccomp profile"
	default:
		return nil
	}
	return api.Errorf(api.FailedPrecondition,
		"%s is in sandbox %s as well, which guards %s of it: what one of the two makes there the other could change",
		m.Source, other, names).
		WithHint("give both the same %s, use %s:overlay, or stop the other one: hutch stop %s", how, m.Source, other)
}

// sameNames says that two lists have the same names, in whatever order.
func sameNames(a, b []string) bool {
	sorted := func(l []string) []string { return slices.Compact(slices.Sorted(slices.Values(l))) }
	return slices.Equal(sorted(a), sorted(b))
}
