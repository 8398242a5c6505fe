package main

import (
	"errors"
	"os"

	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/runtime/api"
)

// sources opens the host folders that a spec names. The fds prove to the daemon
// that the caller may read them, and ride on the request that creates the
// sandbox; root's are mounts, mapped to the daemon's ids.
type sources struct {
	files  []*os.File
	idBase uint32
}

// open opens every folder of s and sets the paths and fd indexes in it.
func (o *sources) open(s *api.Spec) error {
	if w := s.Workspace; w != nil {
		path, i, err := o.add(w.Path, w.Mode, true)
		if err != nil {
			return onField(err, "workspace")
		}
		s.Workspace = &api.Workspace{Path: path, Mode: w.Mode, FD: &i, Guard: w.Guard, Unguarded: w.Unguarded}
	}
	mounts := make([]api.Mount, len(s.Mounts))
	for n, m := range s.Mounts {
		path, i, err := o.add(m.Source, m.Mode, false)
		if err != nil {
			return onField(err, "volume")
		}
		mounts[n] = api.Mount{Source: path, Target: m.Target, Mode: m.Mode, FD: &i}
	}
	s.Mounts = mounts
	return nil
}

func (o *sources) add(path string, mode api.MountMode, wantDir bool) (real string, index int, err error) {
	src, err := hostfs.Open(path)
	if err != nil {
		return "", 0, err
	}
	if wantDir && !src.Dir {
		return "", 0, errors.Join(api.Errorf(api.InvalidArgument, "%s is a file, not a folder", path).
			WithHint("choose the folder it is in, or mount the file itself: -v %s:TARGET", path), src.FD.Close())
	}
	f := src.FD
	if os.Getuid() == 0 {
		// An overlay never writes to what is below it.
		f, err = src.Detach(o.idBase, mode != api.ModeRW)
		if err = errors.Join(err, src.FD.Close()); err != nil {
			return "", 0, err
		}
	}
	o.files = append(o.files, f)
	return src.Path, len(o.files) - 1, nil
}

// onField names the flag at fault.
func onField(err error, flag string) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known.WithOp("--" + flag)
	}
	return err
}

// close closes the fds; the daemon has its own by then.
func (o *sources) close() {
	for _, f := range o.files {
		f.Close()
	}
}
