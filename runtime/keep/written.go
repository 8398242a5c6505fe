package keep

import (
	"context"
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

// StandStill calls use with what a sandbox has written, which does not change meanwhile: a sandbox that runs is paused
// and goes on afterwards. Its PID 1 is not stopped, so that holds for a hostile one by use's own care alone.
func (k *Keep) StandStill(ctx context.Context, ref string, use func(Written) error) error {
	s, err := k.cfg.Sandboxes.Find(ref)
	if err != nil {
		return err
	}
	if sp, _ := s.Now(); sp.WritableUsr {
		return api.Errorf(api.FailedPrecondition,
			"sandbox %s has a writable /usr over the host's, which is no part of an image", s.ID()).
			WithHint("install into an image of your own instead: hutch run debian:12 ...")
	}
	return s.Still(ctx, "commit", func() error {
		return use(Written{
			Folders: append([]string{filepath.Join(s.Dir(), "fs/upper")}, k.Roots(s.Files().Layers)...), Root: s.Root(),
			Own: k.cfg.Own,
			Plain: map[string]uint32{
				".": 0o755, "etc": 0o755, "tmp": 0o1777, "run": 0o755, "run/hutch": 0o755,
				"proc": 0o755, "dev": 0o755, "sys": 0o755, "sys/fs": 0o755, "sys/fs/cgroup": 0o755,
			},
		})
	})
}
