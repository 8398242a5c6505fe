package guard

import (
	"cmp"
	"fmt"
	"slices"

	table "github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Host says whether guarded names that are not there can be refused here: by a Landlock domain.
type Host struct {
	LandlockABI    int    // 0 where there is none
	LandlockReason string // why
}

// Settle decides what api.GuardAuto is here, and refuses a guard that this kernel cannot keep.
func (h Host) Settle(sp *api.Spec) error {
	if w := sp.Workspace; w != nil && w.Mode != api.ModeNone {
		w := *w // the caller's
		var err error
		w.GuardNew, err = h.settle(sp, "workspace",
			&api.Mount{Mode: w.Mode, Guard: w.Guard, Unguarded: w.Unguarded, GuardNew: w.GuardNew})
		if err != nil {
			return err
		}
		sp.Workspace = &w
	}
	sp.Mounts = slices.Clone(sp.Mounts) // the caller's
	for i := range sp.Mounts {
		var err error
		if sp.Mounts[i].GuardNew, err = h.settle(sp, fmt.Sprintf("mounts[%d]", i), &sp.Mounts[i]); err != nil {
			return err
		}
	}
	return nil
}

// settle is Settle for one folder.
func (h Host) settle(sp *api.Spec, field string, m *api.Mount) (api.GuardNew, error) {
	for _, name := range m.Unguarded {
		if !table.Known(name) {
			return "", api.Errorf(api.InvalidArgument, "%s.unguarded: %q is not guarded", field, name).
				WithField(field + ".unguarded").WithHint("`hutch config guard` shows all names that are")
		}
	}
	switch {
	case m.RefusesNew():
		return m.GuardNew, h.check(field)
	case !m.Guards() || m.GuardNew == api.GuardTell:
		return m.GuardNew, nil
	case h.cannot(sp) != "":
		return api.GuardTell, nil
	}
	return api.GuardRefuse, nil
}

// cannot is why names that are not there cannot be refused to a sandbox; "" when they can.
func (h Host) cannot(sp *api.Spec) string {
	switch {
	case h.LandlockABI == 0:
		return h.LandlockReason
	case sp.Landlock == api.LandlockOff:
		return "landlock is off, as was asked for"
	case sp.SeccompProfile != "":
		return "PID 1 is under the custom seccomp profile, which may refuse what it takes"
	}
	return ""
}

func (h Host) check(field string) error {
	if h.LandlockABI > 0 {
		return nil
	}
	return api.Errorf(api.Unavailable, "%s.guard_new: refuse takes a Landlock domain, and there is none here: %s",
		field, h.LandlockReason).
		WithField(field + ".guard_new").
		WithHint("use tell, which tells of such names behind each command; or mode overlay, where what is applied is looked at before")
}

// Wall reports the guards of a sandbox as a wall; false without one. PID 1 does not get ready without.
func (h Host) Wall(sp *api.Spec, guards Folders) (w api.Wall, ok bool) {
	w = api.Wall{Name: "workspace guard", Status: "yes",
		Detail: "guarded names that are not there cannot be made: PID 1 makes what commands make in the folder"}
	for _, g := range guards {
		switch {
		case !g.refuses:
			w.Status = "no"
			w.Detail = "guarded names that are not there can be made, and are told about at the top of the folder: " +
				cmp.Or(h.cannot(sp), "as was asked for")
		case g.unseen > 0 && w.Status == "yes":
			w.Detail += fmt.Sprintf("; %d folders of %s cannot be looked into", g.unseen, g.target)
		}
	}
	return w, len(guards) > 0
}
