package api

import "testing"

// TestGuards: folders of the host's that a sandbox may write have a guard, unless all names are taken off it.
func TestGuards(t *testing.T) {
	for _, m := range []Mount{{Mode: ModeRW}, {Mode: ModeRW, Unguarded: []string{".git"}},
		{Mode: ModeRW, Unguarded: []string{AllNames}, Guard: []string{"own"}}} {
		if m.GuardNew = GuardRefuse; !m.Guards() || !m.RefusesNew() {
			t.Errorf("%+v has no guard", m)
		}
		if m.GuardNew = GuardTell; m.RefusesNew() {
			t.Errorf("%+v refuses", m)
		}
	}
	for _, m := range []Mount{{Mode: ModeRO}, {Mode: ModeOverlay}, {Mode: ModeRW, Volume: "x"},
		{Mode: ModeRW, Unguarded: []string{AllNames}}} {
		if m.GuardNew = GuardRefuse; m.Guards() || m.RefusesNew() {
			t.Errorf("%+v has a guard", m)
		}
	}
}
