package isolation

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestLabels: a label is a wall where something is refused by it, and another one than was asked for is an error.
func TestLabels(t *testing.T) {
	for _, c := range []struct{ profile, label, status string }{
		{"", "unconfined", "no"},
		{"", "hutch (unconfined)", "no"},
		{"", "docker-default (enforce)", "yes"},
		{"hutch-sandbox", "hutch-sandbox (enforce)", "yes"},
		{"hutch-sandbox", "hutch-sandbox (complain)", "no"},
		{"hutch-sandbox", "unconfined", ""},
		{"hutch-sandbox", "hutch-sandbox-other (enforce)", ""},
	} {
		w, err := (&Host{AppArmor: c.profile}).appArmorWall(c.label)
		if (err != nil) != (c.status == "") || err == nil && w.Status != c.status || err != nil &&
			api.ErrorCode(err) != api.Internal {
			t.Errorf("%+v: %+v, %v", c, w, err)
		}
	}
	if w, err := (&Host{AppArmorReason: "none is loaded"}).appArmorWall("unconfined"); err != nil ||
		!strings.Contains(w.Detail, "none is loaded") {
		t.Errorf("%+v, %v", w, err)
	}
	for _, c := range []struct {
		host Host
		want api.AppArmor
		ok   bool
	}{
		{Host{AppArmor: "hutch-sandbox"}, api.AppArmorOn, true},
		{Host{AppArmorReason: "none is loaded"}, api.AppArmorOn, false},
		{Host{}, api.AppArmorOn, false},
		{Host{}, api.AppArmorAuto, true},
		{Host{}, "", true},
	} {
		if err := c.host.CheckAppArmor(c.want); (err == nil) != c.ok || err != nil &&
			api.ErrorCode(err) != api.Unavailable {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for context, want := range map[string]string{
		"unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023": "no",
		"user_u:user_r:user_t:s0":                               "yes",
		"system_u:system_r:container_t:s0:c1,c2":                "yes",
		"_":                                                     "",
		"unconfined":                                            "",
	} {
		if w, ok := seLinuxWall(context); ok != (want != "") || ok && w.Status != want {
			t.Errorf("%s: %+v, %v", context, w, ok)
		}
	}
}
