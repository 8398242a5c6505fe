package launch

import (
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// MountOverlayData mounts o the way older kernels need.
func MountOverlayData(o launchapi.Overlay) error {
	options, err := overlayOptions(o)
	if err != nil {
		return err
	}
	return sys.MountOverlayData(o.Dir, o.Target, options, unix.MOUNT_ATTR_NODEV)
}

// MountOverlay mounts o as sandboxes have it.
var MountOverlay = mountOverlay
