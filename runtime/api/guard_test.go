package api

import (
	"slices"
	"strings"
	"testing"
)

// TestGuarded: a folder that is unguarded takes with it what is guarded below it, and nothing whose name only begins alike.
func TestGuarded(t *testing.T) {
	w := &Workspace{Mode: ModeRW, Unguarded: []string{".git", ".config"}, Guard: []string{"own"}, GuardNew: GuardRefuse}
	names := w.Guarded()
	if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, ".git/") || strings.HasPrefix(n, ".config/") }) {
		t.Errorf("%q", names)
	}
	for _, name := range []string{".gitconfig", ".gitmodules", ".vscode", "own"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in %q", name, names)
		}
	}
	if all := (&Workspace{Mode: ModeRW, Unguarded: []string{AllNames}, GuardNew: GuardRefuse}); all.RefusesNew() || !w.RefusesNew() || (*Workspace)(nil).RefusesNew() {
		t.Error("who refuses")
	}
}
