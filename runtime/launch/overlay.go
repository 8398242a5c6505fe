package launch

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// mountOverlay mounts o on o.Target.
func mountOverlay(o launchapi.Overlay) error {
	options, err := overlayOptions(o)
	if err != nil {
		return err
	}
	err = sys.MountOverlay(o.Dir, o.Target, options, unix.MOUNT_ATTR_NODEV)
	switch {
	case errors.Is(err, sys.ErrNoOverlay):
		return api.Errorf(api.Unavailable, "%w", err).
			WithHint("sandboxes need overlayfs in user namespaces: Linux 5.11 or newer, and `modprobe overlay` where it is a module")
	case errors.Is(err, sys.ErrLayers):
		return api.Errorf(api.ResourceExhausted, "%w", err).
			WithHint("use an image with fewer layers, or Linux 6.8 or newer")
	}
	return err
}

// overlayOptions are the options for fsconfig(2), in an order that it takes:
// layers from the top.
func overlayOptions(o launchapi.Overlay) ([]sys.FSOption, error) {
	if len(o.Lower) == 0 {
		return nil, api.Errorf(api.InvalidArgument, "overlay for %s has no lower folder", o.Target)
	}
	options := []sys.FSOption{{Key: "source", Value: "overlay"}}
	for _, lower := range o.Lower {
		options = append(options, sys.FSOption{Key: "lowerdir+", Value: lower})
	}
	options = append(options, sys.FSOption{Key: "upperdir", Value: o.Upper},
		sys.FSOption{Key: "workdir", Value: o.Work})
	for _, opt := range options {
		if opt.Value == "" {
			return nil, api.Errorf(api.InvalidArgument, "overlay %s is empty", opt.Key)
		}
	}
	// user.overlay.* attributes: a user namespace may not set trusted.* ones.
	options = append(options, sys.FSOption{Key: "userxattr"})
	if o.Volatile {
		options = append(options, sys.FSOption{Key: "volatile"})
	}
	return options, nil
}

// mountPts mounts a new devpts instance on dir and returns its ptmx, opened with
// O_PATH: opening /proc/self/fd/N makes a pty each time, whatever the sandbox
// has mounted over the name since. The caller owns it.
func mountPts(dir string) (*os.File, error) {
	options := []sys.FSOption{
		{Key: "source", Value: "devpts"},
		{Key: "newinstance"}, // always so since Linux 4.7
		{Key: "ptmxmode", Value: "0666"},
		{Key: "mode", Value: "0620"},
	}
	// The tty group, where this user namespace has one.
	const ttyGID = 5
	if mapped, err := gidMapped(ttyGID); err != nil {
		return nil, err
	} else if mapped {
		options = append(options, sys.FSOption{Key: "gid", Value: fmt.Sprint(ttyGID)})
	}
	mnt, err := sys.FSMount("devpts", options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	defer mnt.Close()
	fd, err := unix.Openat(int(mnt.Fd()), "ptmx", unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open ptmx of new devpts: %w", err)
	}
	ptmx := os.NewFile(uintptr(fd), "ptmx")
	if err := sys.AttachTree(mnt, dir); err != nil {
		_ = ptmx.Close()
		return nil, err
	}
	return ptmx, nil
}

// gidMapped reports whether gid exists in this user namespace.
func gidMapped(gid uint32) (bool, error) {
	text, err := os.ReadFile("/proc/self/gid_map")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, count uint32
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return false, fmt.Errorf("/proc/self/gid_map: %q: %w", line, err)
		}
		if gid >= inside && gid-inside < count {
			return true, nil
		}
	}
	return false, nil
}
