package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/images"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// hostViews are the read-only views of host folders, /usr above all, that
// sandboxes of the host image bind. Each is mounted once per daemon, as an
// overlay: a sandbox's mountinfo then names neither the host's device nor its
// paths. Where the kernel refuses the overlay (a mount lies below the folder),
// the folder itself is bound, with empty folders over what must be hidden.
type hostViews struct {
	dir string // the daemon's home

	mu     sync.Mutex
	byFrom map[string]string // overlay+source -> mount point, "" when it must be a bind
	mounts []string
	made   int // number of the next view
	empty  string
}

// adopt takes over the views of a hutchd before, which sandboxes still use. What they
// show is not known any more, so new sandboxes get new ones.
func (v *hostViews) adopt() error {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return fmt.Errorf("take over the views of host folders: %w", err)
	}
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), "view%d", &n); err == nil {
			v.mounts = append(v.mounts, filepath.Join(v.dir, e.Name()))
			v.made = max(v.made, n+1)
		}
		if e.Name() == "empty" {
			v.empty = filepath.Join(v.dir, e.Name())
		}
	}
	return nil
}

// binds turns what the image describes into what spec.Build takes.
func (v *hostViews) binds(store string, want []images.Bind) ([]spec.Bind, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []spec.Bind
	for _, b := range want {
		at := ""
		if b.Overlay != "" {
			var err error
			if at, err = v.view(filepath.Join(store, b.Overlay), b.Source); err != nil {
				return nil, err
			}
		}
		if at != "" {
			out = append(out, spec.Bind{Source: at, Target: b.Target, ReadOnly: true})
			continue
		}
		out = append(out, spec.Bind{Source: b.Source, Target: b.Target, ReadOnly: true})
		for _, hide := range b.Hide {
			if err := v.makeEmpty(); err != nil {
				return nil, err
			}
			out = append(out, spec.Bind{Source: v.empty, Target: hide, ReadOnly: true})
		}
	}
	return out, nil
}

// view mounts the overlay of [overlay, source], once.
func (v *hostViews) view(overlay, source string) (string, error) {
	key := overlay + "\x00" + source
	if at, ok := v.byFrom[key]; ok {
		return at, nil
	}
	at := filepath.Join(v.dir, "view"+strconv.Itoa(v.made))
	if err := os.Mkdir(at, 0o755); err != nil {
		return "", fmt.Errorf("make mount point: %w", err)
	}
	err := mountReadOnly(at, overlay, source)
	switch {
	case err == nil:
		v.mounts = append(v.mounts, at)
		v.made++
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM), errors.Is(err, unix.ELOOP):
		// Refused for this source: the bind shows the same files as read-only.
		if err := os.Remove(at); err != nil {
			return "", err
		}
		at = ""
	default:
		return "", fmt.Errorf("mount a view of %s: %w", source, err)
	}
	if v.byFrom == nil {
		v.byFrom = map[string]string{}
	}
	v.byFrom[key] = at
	return at, nil
}

// mountReadOnly mounts a read-only overlay of lower folders at target.
func mountReadOnly(target string, lower ...string) error {
	options := []sys.FSOption{{Key: "source", Value: "overlay"}}
	for _, l := range lower {
		options = append(options, sys.FSOption{Key: "lowerdir+", Value: l})
	}
	options = append(options, sys.FSOption{Key: "userxattr"})
	return sys.MountOverlay("/", target, options, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

func (v *hostViews) makeEmpty() error {
	if v.empty != "" {
		return nil
	}
	dir := filepath.Join(v.dir, "empty")
	if err := os.Mkdir(dir, 0o555); err != nil {
		return fmt.Errorf("make an empty folder: %w", err)
	}
	v.empty = dir
	return nil
}

// close unmounts the views; no sandbox uses them any more.
func (v *hostViews) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, at := range v.mounts {
		err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) { // hutchd was killed before it mounted it
			errs = append(errs, fmt.Errorf("unmount %s: %w", at, err))
		}
	}
	v.mounts, v.byFrom = nil, nil
	return errors.Join(errs...)
}
