package sys

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNoOverlay says that this kernel, or this user namespace, has no overlayfs. ErrLayers
// says that it takes fewer layers, or shorter names.
var (
	ErrNoOverlay = errors.New("no overlayfs")
	ErrLayers    = errors.New("overlay has too many layers for this kernel")
)

// maxMountData is how much of mount(2)'s data the kernel reads: a page, with the
// terminating zero.
const maxMountData = 4095

// MountOverlay mounts an overlay on target, an absolute path. Its layers are options lowerdir+, the
// top-most first, where the kernel takes them one by one, and otherwise one option of
// mount(2). The folders among the options are relative to dir. /proc/PID/mountinfo, which sandboxes
// can read, repeats names as the kernel was given them, so it is given the numbers of fds, which
// name nothing. attrs are MOUNT_ATTR_RDONLY, _NOSUID, _NODEV and _NOEXEC.
func MountOverlay(dir, target string, options []FSOption, attrs int) error {
	oneByOne, err := overlayLowerPlus()
	if err != nil {
		return err
	}
	if !oneByOne {
		return MountOverlayData(dir, target, options, attrs)
	}
	return numbered(dir, options, func(options []FSOption) error {
		mnt, err := FSMount("overlay", options, attrs)
		if err != nil {
			return err
		}
		defer mnt.Close()
		return AttachTree(mnt, target)
	})
}

// MountOverlayData is MountOverlay for kernels without lowerdir+.
func MountOverlayData(dir, target string, options []FSOption, attrs int) error {
	return numbered(dir, options, func(options []FSOption) error {
		var lower, rest []string
		for _, o := range options {
			switch {
			case o.Key == "source":
			case o.Key == "lowerdir+":
				lower = append(lower, o.Value)
			case o.Value == "":
				rest = append(rest, o.Key)
			default:
				rest = append(rest, o.Key+"="+o.Value)
			}
		}
		data := strings.Join(append([]string{"lowerdir=" + strings.Join(lower, ":")}, rest...), ",")
		if len(data) > maxMountData {
			return fmt.Errorf("%w: %d layers need %d bytes of options, it takes %d", ErrLayers, len(lower), len(data),
				maxMountData)
		}
		// These attributes have the same numbers as mount(2)'s flags (linux/mount.h).
		if err := unix.Mount("overlay", target, "overlay", uintptr(attrs), data); err != nil {
			return fmt.Errorf("mount overlay %q: %w", data, err)
		}
		return nil
	})
}

// numbered runs fn with the options whose values are folders, relative to dir, replaced by
// numbers of fds, in the working directory where those are names: /proc/self/fd.
func numbered(dir string, options []FSOption, fn func([]FSOption) error) error {
	base, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer base.Close()
	options = slices.Clone(options)
	for i, o := range options {
		if o.Key != "lowerdir+" && o.Key != "upperdir" && o.Key != "workdir" {
			continue
		}
		fd, err := unix.Openat(int(base.Fd()), o.Value, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("mount overlay, option %s=%q: %w", o.Key, o.Value, err)
		}
		defer unix.Close(fd)
		options[i].Value = strconv.Itoa(fd)
	}
	return InFolder("/proc/self/fd", func() error { return fn(options) })
}

// lowerPlus caches a conclusive answer of overlayLowerPlus.
var lowerPlus struct {
	mu        sync.Mutex
	known, ok bool
}

// overlayLowerPlus probes whether overlayfs takes its layers one by one (Linux 6.8,
// commit 78b9d2acc3e8, and backports).
func overlayLowerPlus() (bool, error) {
	lowerPlus.mu.Lock()
	defer lowerPlus.mu.Unlock()
	if lowerPlus.known {
		return lowerPlus.ok, nil
	}
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNoOverlay, err)
	}
	defer unix.Close(fd)
	err = unix.FsconfigSetString(fd, "lowerdir+", "/")
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return false, fmt.Errorf("probe overlayfs lowerdir+: %w", err)
	}
	// Until Linux 6.5 overlayfs did not read options one by one: the kernel collected
	// them, refused none, and the mount failed.
	refuses := unix.FsconfigSetString(fd, "hutch-unknown", "x") != nil
	lowerPlus.known, lowerPlus.ok = true, err == nil && refuses
	return lowerPlus.ok, nil
}
