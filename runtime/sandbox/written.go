package sandbox

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// Written is what a sandbox has written over its image.
type Written struct {
	// Folders are the upper folder of its root, and below it those of what it was forked from; top-most first. They are
	// sandboxes' files, and hostile.
	Folders []string
	Root    *spec.Root
	// Own are files there that are not the image's business: hutchd made them, or the image
	// that a sandbox shows has others in their place. Plain are the folders that it made for
	// them, with their modes.
	Own   []string
	Plain map[string]uint32
}

// StandStill calls use with what a sandbox has written, which does not change meanwhile: a
// sandbox that runs is paused and goes on afterwards. Its PID 1 is not stopped, so that
// holds for a hostile one by use's own care alone.
func (m *Manager) StandStill(ctx context.Context, ref string, use func(Written) error) error {
	s, err := m.find(ref)
	if err != nil {
		return err
	}
	if s.spec.WritableUsr {
		return api.Errorf(api.FailedPrecondition,
			"sandbox %s has a writable /usr over the host's, which is no part of an image", s.id).
			WithHint("install into an image of your own instead: hutch run debian:12 ...")
	}
	return m.still(ctx, s, "commit", func() error {
		return use(Written{
			Folders: append([]string{filepath.Join(s.dir, "fs/upper")}, m.Keep.Roots(s.kept.Layers)...), Root: s.root,
			Own: ownNames,
			Plain: map[string]uint32{
				".": 0o755, "etc": 0o755, "tmp": 0o1777, "run": 0o755, "run/hutch": 0o755,
				"proc": 0o755, "dev": 0o755, "sys": 0o755, "sys/fs": 0o755, "sys/fs/cgroup": 0o755,
			},
		})
	})
}

// still calls use while nothing of the sandbox runs but its PID 1.
func (m *Manager) still(ctx context.Context, s *Sandbox, reason string, use func() error) (err error) {
	done, err := s.admission.take(ctx) // nobody else pauses or resumes
	if err != nil {
		return err
	}
	defer done()
	m.mu.Lock()
	same := m.byID[s.id] == s
	m.mu.Unlock()
	if !same {
		return api.Errorf(api.Unavailable, "sandbox %s was stopped, started or removed meanwhile", s.id).
			WithHint("try again")
	}
	switch s.state() {
	case api.Stopped, api.Paused:
	case api.Running:
		// On record as paused, so that it does not stand still for ever when this process
		// is killed: whoever uses it then resumes it.
		if _, err := m.pauseNow(ctx, s, reason, false); err != nil {
			return err
		}
		defer func() {
			if s.state() != api.Paused { // it was removed meanwhile, or its PID 1 was killed
				return
			}
			_, rerr := m.resumeNow(s)
			err = errors.Join(err, rerr)
		}()
	default:
		return s.mustRun()
	}
	return use()
}

// ownNames are the files of ownFiles.
var ownNames = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
