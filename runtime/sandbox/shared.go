package sandbox

import (
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Folders that several sandboxes write to. The guard of a sandbox covers what its folder held when the sandbox was
// made. A name that another sandbox may make there, because it does not guard it, would be an ordinary file to the
// first one: a repository of `--unguard git-new`, say, whose configuration it may then write. So all sandboxes that
// write to a folder guard the same names of it.

// checkShared refuses a folder that a sandbox which runs guards in another way. It comes after the folders are
// attached: of two creations at the same moment one at least sees the other's.
func (f *creation) checkShared(wanted []api.Mount) error {
	var others []*Sandbox
	f.m.mu.Lock()
	for _, s := range f.m.byID {
		if s != f.s && !s.stopped {
			others = append(others, s)
		}
	}
	f.m.mu.Unlock()
	for i := range wanted {
		if !writesHost(&wanted[i]) {
			continue
		}
		for _, other := range others {
			if err := f.checkSharedWith(other, i, &wanted[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *creation) checkSharedWith(other *Sandbox, i int, m *api.Mount) error {
	theirs, err := inOrder(hostFolders(&other.spec))
	if err != nil {
		return nil // it was refused itself
	}
	for j := range theirs {
		o := &theirs[j]
		if !writesHost(o) || sameGuard(m, o) || !overlap(m.Source, f.mountDir(i), o.Source,
			filepath.Join(other.dir, "mnt", strconv.Itoa(j))) {
			continue
		}
		return api.Errorf(api.FailedPrecondition,
			"%s is in sandbox %s as well, with other names guarded: what one of the two makes there the other could change",
			m.Source, other.id).
			WithHint("give both the same --guard and --unguard, use %s:overlay, or stop the other one: hutch stop %s",
				m.Source, other.id)
	}
	return nil
}

// writesHost says that a sandbox writes to a folder of the host's.
func writesHost(m *api.Mount) bool { return m.Mode == api.ModeRW && m.Volume == "" }

// sameGuard says that two folders guard the same names in the same way.
func sameGuard(a, b *api.Mount) bool {
	same := func(x, y []string) bool {
		return slices.Equal(slices.Compact(slices.Sorted(slices.Values(x))),
			slices.Compact(slices.Sorted(slices.Values(y))))
	}
	return a.Guards() == b.Guards() && a.RefusesNew() == b.RefusesNew() &&
		same(a.Guard, b.Guard) && same(a.Unguarded, b.Unguarded)
}

// overlap says that two folders are one, or that one lies in the other. Where they are mounted tells for certain
// whether they are one, their names whether one is in the other.
func overlap(aName, aMount, bName, bMount string) bool {
	aName, bName = filepath.Clean(aName), filepath.Clean(bName)
	if aName == bName || within(aName, bName) || within(bName, aName) {
		return true
	}
	var a, b unix.Stat_t
	return unix.Stat(aMount, &a) == nil && unix.Stat(bMount, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}
