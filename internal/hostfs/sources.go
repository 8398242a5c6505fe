package hostfs

import (
	"errors"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Sources opens the host folders that a spec names. The fds prove to the daemon
// that the caller may read them, and ride on the request that creates the
// sandbox; root's are mounts, mapped to the daemon's ids.
type Sources struct {
	Files []*os.File
	Owner Owner // as whom root's folders' owners appear
}

// Lend opens the folders of spec for a call, and closes them behind it. Only when it knows the image does hutchd know
// as which user their owner has to appear to the commands; where that is not root, root's folders are opened again, and
// the call is made again.
func Lend(base uint32, spec api.Spec, call func(opened api.Spec, files []*os.File) error) error {
	owner := Owner{Base: base}
	err := lend(owner, spec, call)
	var e *api.Error
	if !errors.As(err, &e) || e.Owner == nil || *e.Owner == owner.FolderOwner ||
		max(e.Owner.UID, e.Owner.GID) >= api.IDCount {
		return err
	}
	owner.FolderOwner = *e.Owner
	return lend(owner, spec, call)
}

func lend(owner Owner, spec api.Spec, call func(api.Spec, []*os.File) error) error {
	o := Sources{Owner: owner}
	defer o.Close()
	if err := o.Open(&spec); err != nil {
		return err
	}
	return call(spec, o.Files)
}

// Open opens every folder of s and sets the paths and fd indexes in it.
func (o *Sources) Open(s *api.Spec) error {
	if w := s.Workspace; w != nil {
		path, i, err := o.Add(w.Path, w.Mode, true)
		if err != nil {
			return OnField(err, "workspace")
		}
		opened := *w
		opened.Path, opened.FD = path, &i
		s.Workspace = &opened
	}
	mounts := make([]api.Mount, len(s.Mounts))
	for n, m := range s.Mounts {
		if !m.OfHost() {
			mounts[n] = m
			continue
		}
		path, i, err := o.Add(m.Source, m.Mode, false)
		if err != nil {
			return OnField(err, "volume")
		}
		mounts[n] = m
		mounts[n].Source, mounts[n].FD = path, &i
	}
	s.Mounts = mounts
	return nil
}

// Add opens one folder, or a file where wantDir is not set, and returns where it really is and the index of its fd.
func (o *Sources) Add(path string, mode api.MountMode, wantDir bool) (real string, index int, err error) {
	src, err := Open(path)
	if err != nil {
		return "", 0, err
	}
	if wantDir && !src.Dir {
		return "", 0, errors.Join(api.Errorf(api.InvalidArgument, "%s is a file, not a folder", path).
			WithHint("choose the folder it is in, or mount the file itself: -v %s:TARGET", path), src.FD.Close())
	}
	f := src.FD
	if os.Getuid() == 0 {
		if err := o.Owner.check(); err != nil {
			return "", 0, errors.Join(err, src.FD.Close())
		}
		// An overlay never writes to what is below it.
		f, err = src.Detach(o.Owner, mode != api.ModeRW)
		if err = errors.Join(err, src.FD.Close()); err != nil {
			return "", 0, err
		}
	}
	o.Files = append(o.Files, f)
	return src.Path, len(o.Files) - 1, nil
}

// OnField names the flag at fault.
func OnField(err error, flag string) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known.WithOp("--" + flag)
	}
	return err
}

// Close closes the fds; the daemon has its own by then.
func (o *Sources) Close() {
	for _, f := range o.Files {
		f.Close()
	}
}
