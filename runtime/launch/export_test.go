package launch

import (
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// MountOverlayData mounts o the way older kernels need.
func MountOverlayData(o launchapi.Overlay) error {
	options, err := overlayOptions(o)
	if err != nil {
		return err
	}
	return sys.InFolder(o.Dir, func() error { return mountOverlayData(o.Target, options) })
}

// MountOverlay mounts o as sandboxes have it.
var MountOverlay = mountOverlay
