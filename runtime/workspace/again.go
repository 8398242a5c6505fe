package workspace

import (
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Trees are folders of a sandbox that are given to another one, or to the same anew, in the place of the fds that its
// client sent: clones of mounts, so that nobody need be asked again, and no path be walked that now leads elsewhere.
type Trees map[int]*os.File

// Again takes those of the folders that a client has handed over, from the mounts of a sandbox whose folder is dir.
// They have the numbers that sp names.
func Again(sp *api.Spec, dir string) (Trees, error) {
	sorted, err := Sorted(sp)
	if err != nil {
		return nil, err
	}
	t := Trees{}
	for i, m := range sorted {
		if m.FD == nil {
			continue
		}
		if err := t.clone(*m.FD, At(dir, i), m.Source); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Clone takes all folders of the host's from the mounts of a sandbox that runs, of which sp is the spec and dir the
// folder, for one that is made by another spec with the same folders. That one names them as it is returned.
func Clone(sp *api.Spec, dir string, another api.Spec) (api.Spec, Trees, error) {
	sorted, err := Sorted(sp)
	if err != nil {
		return another, nil, err
	}
	t := Trees{}
	var handed []api.StartFolder
	for i, mt := range sorted {
		if !mt.OfHost() {
			continue
		}
		if err := t.clone(i, At(dir, i), mt.Source); err != nil {
			return another, nil, err
		}
		handed = append(handed, api.StartFolder{Target: mt.Target, FD: i})
	}
	another, err = HandOver(another, handed)
	return another, t, err
}

// clone adds what is mounted at a folder. After an error there is none left.
func (t Trees) clone(index int, at, source string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		t.Close()
		return fmt.Errorf("take the mount of %s again: %w", source, err)
	}
	t[index] = os.NewFile(uintptr(fd), source)
	return nil
}

// Take hands over one.
func (t Trees) Take(index int) (*os.File, error) {
	f := t[index]
	if f == nil {
		return nil, api.Errorf(api.Internal, "no fd %d of the sandbox before", index).
			WithHint("end the scope and create it anew")
	}
	delete(t, index)
	return f, nil
}

// Close closes those that nobody has taken.
func (t Trees) Close() {
	for _, f := range t {
		_ = f.Close()
	}
}

// HandOver is a spec with the fds of this call in the place of those that came with the sandbox.
func HandOver(sp api.Spec, folders []api.StartFolder) (api.Spec, error) {
	at := map[string]*int{}
	for _, f := range folders {
		at[path.Clean(f.Target)] = &f.FD
	}
	take := func(target string) *int {
		fd := at[path.Clean(target)]
		delete(at, path.Clean(target))
		return fd
	}
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		c := *w
		c.FD = take(Target)
		sp.Workspace = &c
	}
	sp.Mounts = slices.Clone(sp.Mounts)
	for i := range sp.Mounts {
		if mt := &sp.Mounts[i]; mt.OfHost() {
			mt.FD = take(mt.Target)
		}
	}
	for target := range at {
		return sp, api.Errorf(api.InvalidArgument, "folders: the sandbox had no folder of the host's at %s", target).
			WithField("folders").
			WithHint("name the target of --workspace, which is %s, or of -v", Target)
	}
	return sp, nil
}

// HandedOver are the folders that came along with a spec, by the fds of its call.
func HandedOver(sp *api.Spec) (list []api.StartFolder) {
	for _, mt := range Of(sp) {
		if mt.FD != nil {
			list = append(list, api.StartFolder{Target: mt.Target, FD: *mt.FD})
		}
	}
	return list
}
