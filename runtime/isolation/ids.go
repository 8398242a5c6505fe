package isolation

import (
	"github.com/hutch-sh/hutch/runtime/api"
)

// CheckIDs refuses ids that would be emulated although there are real ones.
func (h *Host) CheckIDs(want api.IDs) error {
	if want != api.IDsEmulate || h.UserMap == "single" {
		return nil
	}
	return api.Errorf(api.Unavailable,
		"ids: emulate is for daemons without subordinate ids, and this one has a range of them: users in its sandboxes are real").
		WithField("ids").WithHint("leave it out, or use auto")
}

// EmulatesIDs reports whether PID 1 is to answer for ids that there are not.
func (h *Host) EmulatesIDs(want api.IDs) bool {
	return h.UserMap == "single" && want != api.IDsReal
}

// AddIDs tells what other ids than root's are; can is what PID 1 says of itself, which is believed: nothing but
// convenience depends on it.
func (h *Host) AddIDs(iso *api.Isolation, want api.IDs, can bool) error {
	if h.UserMap != "single" {
		return nil
	}
	w := api.Wall{Name: "ids", Status: "no",
		Detail: "emulated: PID 1 says that files are given and users taken on, and nothing of it keeps processes of the sandbox apart"}
	switch {
	case can && h.EmulatesIDs(want):
	case want == api.IDsEmulate:
		return api.Errorf(api.Unavailable,
			"ids: emulate takes Linux 5.19, nothing around hutch that listens to system calls already, and no limit of file locks (ulimit -Hx)").
			WithField("ids").WithHint("use auto: then there is only root inside, and package managers may fail")
	case want == api.IDsReal:
		w.Detail = "only root, as was asked for: to give a file to another or to become one fails"
	default:
		w.Detail = "only root: to emulate others takes Linux 5.19, nothing around hutch that listens to system calls already, and no limit of file locks (ulimit -Hx)"
	}
	iso.Walls = append(iso.Walls, w)
	return nil
}
