package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Volumes keeps named volumes: runtime/volume.
type Volumes interface {
	// Use opens a user's volume, which is not removed before the file is closed; it is made where it is missing
	// and make says so.
	Use(user uint32, name string, make bool) (*os.File, error)
	// Path is where Use finds it.
	Path(user uint32, name string) string
}

// volume opens a volume for as long as the sandbox is there.
func (f *creation) volume(mt api.Mount) (*os.File, error) {
	held, err := f.m.cfg.Volumes.Use(f.s.user, mt.Volume, mt.Mode == api.ModeRW)
	if err != nil {
		return nil, err
	}
	f.undo.Add(f.s.lease(held.Close))
	fd, err := unix.FcntlInt(held.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open volume %s: %w", mt.Volume, err)
	}
	return os.NewFile(uintptr(fd), held.Name()), nil
}

// holdVolumes keeps the volumes of a sandbox of a hutchd before. One that another daemon has removed in the meantime is
// in no folder any more; the sandbox has it all the same.
func (m *Manager) holdVolumes(s *Sandbox) (release func() error) {
	var held []*os.File
	for _, mt := range s.spec.Mounts {
		if mt.Volume == "" {
			continue
		}
		f, err := m.cfg.Volumes.Use(s.user, mt.Volume, false)
		if err != nil {
			m.cfg.Logger.Warn("keep a volume", "sandbox", s.id, "volume", mt.Volume, "err", err)
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

// volumes are the folders of those volumes that a sandbox may write to. What they hold counts with what the sandbox has
// written: nothing else bounds it.
func (m *Manager) volumes(s *Sandbox) (list []string) {
	for _, mt := range s.spec.Mounts {
		if mt.Volume != "" && mt.Mode == api.ModeRW {
			list = append(list, m.cfg.Volumes.Path(s.user, mt.Volume))
		}
	}
	return list
}

// freeBeside is what is free on the file system of path, where that is another than the one of folder.
func freeBeside(folder, path string) (diskuse.Usage, error) {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat(folder, &a), unix.Stat(path, &b)); err != nil || a.Dev == b.Dev {
		return diskuse.Usage{}, err
	}
	free, _, err := diskuse.FreeAt(path)
	return free, err
}

// UsersOf are the ids of the sandboxes that have a user's volume mounted.
func (m *Manager) UsersOf(user uint32, volume string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := []string{}
	for id, s := range m.byID {
		if s.user == user &&
			slices.ContainsFunc(s.spec.Mounts, func(mt api.Mount) bool { return mt.Volume == volume }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
