package workspace

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// volume opens a volume for as long as the sandbox is there.
func (a *Attaching) volume(mt api.Mount) (*os.File, error) {
	held, err := a.ws.volumes.Use(a.User, mt.Volume, mt.Mode == api.ModeRW)
	if err != nil {
		return nil, err
	}
	a.c.Lease(held.Close)
	fd, err := unix.FcntlInt(held.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open volume %s: %w", mt.Volume, err)
	}
	return os.NewFile(uintptr(fd), held.Name()), nil
}

// HoldVolumes keeps the volumes of a sandbox of a hutchd before. One that another daemon has removed in the meantime is
// in no folder any more; the sandbox has it all the same.
func (ws *Workspaces) HoldVolumes(s Sandbox) (release func() error) {
	var held []*os.File
	for _, mt := range s.Spec().Mounts {
		if mt.Volume == "" {
			continue
		}
		f, err := ws.volumes.Use(s.User(), mt.Volume, false)
		if err != nil {
			ws.log.Warn("keep a volume", "sandbox", s.ID(), "volume", mt.Volume, "err", err)
			continue
		}
		held = append(held, f)
	}
	return func() (err error) {
		for _, f := range held {
			err = errors.Join(err, f.Close())
		}
		return err
	}
}

// VolumeFolders are the folders of those volumes of a user's that a sandbox of this spec may write to. What they hold
// counts with what the sandbox has written: nothing else bounds it.
func (ws *Workspaces) VolumeFolders(user uint32, sp *api.Spec) (list []string) {
	for _, mt := range sp.Mounts {
		if mt.Volume != "" && mt.Mode == api.ModeRW {
			list = append(list, ws.volumes.Path(user, mt.Volume))
		}
	}
	return list
}

// UsersOf are the ids of the sandboxes that have a user's volume mounted.
func (ws *Workspaces) UsersOf(user uint32, volume string) []string {
	ids := []string{}
	for _, s := range ws.sandboxes.All() {
		if s.User() == user &&
			slices.ContainsFunc(s.Spec().Mounts, func(mt api.Mount) bool { return mt.Volume == volume }) {
			ids = append(ids, s.ID())
		}
	}
	slices.Sort(ids)
	return ids
}
