package isolation

import (
	"fmt"

	"github.com/hutch-sh/hutch/runtime/api"
)

// CheckLandlock refuses what this kernel cannot do.
func (h *Host) CheckLandlock(want api.Landlock) error {
	if want != api.LandlockOn || h.LandlockABI > 0 {
		return nil
	}
	return api.Errorf(api.Unavailable, "landlock: commands cannot be in a Landlock domain here: %s", h.LandlockReason).
		WithField("landlock").
		WithHint("use auto: mounts, namespaces and seccomp stand without it, and hutch inspect says that it is missing")
}

// LandlockOf is the ABI of the domain that commands get; 0 is none.
func (h *Host) LandlockOf(want api.Landlock) int {
	if want == api.LandlockOff {
		return 0
	}
	return h.LandlockABI
}

// AddLandlock tells of that domain. PID 1 starts no command outside of it: the first
// fails where it cannot be made.
func (h *Host) AddLandlock(iso *api.Isolation, want api.Landlock) {
	iso.LandlockABI = h.LandlockOf(want)
	w := api.Wall{Name: "landlock", Status: "yes",
		Detail: fmt.Sprintf("ABI %d: commands open nothing that is not beneath the sandbox's root", iso.LandlockABI)}
	if iso.LandlockABI == 0 {
		w.Status, w.Detail = "no", h.LandlockReason
		if want == api.LandlockOff {
			w.Detail = "off, as was asked for"
		}
	}
	iso.Walls = append(iso.Walls, w)
}
