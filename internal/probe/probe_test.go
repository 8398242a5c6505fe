package probe

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestAll makes every probe for real, as whoever runs the tests, and holds the
// findings to what a person and a program need from them.
func TestAll(t *testing.T) {
	dir := t.TempDir()
	checks := All(t.Context(), Options{StateFolder: dir + "/not/yet"})
	seen := map[string]bool{}
	for _, c := range checks {
		t.Logf("%-18s %-12s %s", c.Name, c.Status, c.Detail)
		if seen[c.Name] {
			t.Errorf("%s is reported twice", c.Name)
		}
		seen[c.Name] = true
		if c.Detail == "" {
			t.Errorf("%s has no detail", c.Name)
		}
		if c.Status == Yes && c.Remedy != "" {
			t.Errorf("%s works but has a remedy: %s", c.Name, c.Remedy)
		}
	}
	for _, name := range []string{"user_namespaces", "namespaces", "overlay", "proc", "seccomp", "cgroups",
		"state_folder"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the state folder holds %v (%v) after the probes", left, err)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if c := UserNamespaces(ctx); c.Status == No {
		t.Errorf("a canceled probe says no: %+v", c)
	}
}

func TestCanRun(t *testing.T) {
	for _, tt := range []struct {
		check Check
		want  bool
	}{
		{Check{Status: No, Required: true}, false},
		{Check{Status: Inconclusive, Required: true}, true},
		{Check{Status: No}, true},
		{Check{Status: Yes, Required: true}, true},
	} {
		if got := CanRun([]Check{{Status: Yes}, tt.check}); got != tt.want {
			t.Errorf("CanRun with %+v = %v", tt.check, got)
		}
	}
}

// TestJSON pins the form that system.doctor sends.
func TestJSON(t *testing.T) {
	got, err := json.Marshal(no("overlay", "why", "how").required())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"overlay","status":"no","detail":"why","remedy":"how","required":true}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestSingle: a probe alone finds what it finds among all.
func TestSingle(t *testing.T) {
	all := All(t.Context(), Options{StateFolder: t.TempDir()})
	for _, c := range []Check{
		Namespaces(t.Context()), Overlay(t.Context()), OverlayLowerdir(t.Context()), Proc(t.Context()),
		NFTables(t.Context()), NFTablesTproxy(t.Context()), NFTablesQueue(t.Context()), NFTablesRedirect(t.Context()),
		StateFolder(t.Context(), t.TempDir()),
	} {
		i := slices.IndexFunc(all, func(a Check) bool { return a.Name == c.Name })
		if i < 0 || all[i].Status != c.Status || all[i].Required != c.Required {
			t.Errorf("alone %+v, among all %+v", c, all[max(i, 0)])
		}
	}
}
