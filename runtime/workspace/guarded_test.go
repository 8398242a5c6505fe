package workspace

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/internal/changes"
)

func TestGuardedBy(t *testing.T) {
	for _, tt := range []struct {
		c    changes.Change
		want string
	}{
		{changes.Change{Path: "src/main.go"}, ""},
		{changes.Change{Path: ".gitignore"}, ""},
		{changes.Change{Path: "a/profile"}, ""},
		{changes.Change{Path: ".git/objects/ab/cd"}, ""},
		{changes.Change{Path: ".git/refs/heads/main"}, ""},
		{changes.Change{Path: ".git/HEAD"}, ""},
		{changes.Change{Path: ".git/hooks/pre-commit"}, ".git/hooks"},
		{changes.Change{Path: ".GIT/Hooks/pre-commit"}, ".GIT/Hooks"},
		{changes.Change{Path: ".git/commondir"}, ".git/commondir"},
		{changes.Change{Path: ".git/worktrees/x/gitdir"}, ".git/worktrees"},
		{changes.Change{Path: ".git/\u023a"}, ".git/\u023a"}, // its lower case is longer
		{changes.Change{Path: "vendor/lib/.git/config"}, "vendor/lib/.git/config"},
		{changes.Change{Path: "sub/.vscode/tasks.json"}, "sub/.vscode"},
		{changes.Change{Path: "x", From: ".git/config", Kind: changes.Renamed}, ".git/config"},
		// A folder above is harmless by itself; a link in its place is not.
		{changes.Change{Path: "sub/.git", Type: "d", Kind: changes.Added}, ""},
		{changes.Change{Path: ".config", Type: "d", Kind: changes.Added}, ""},
		{changes.Change{Path: "sub/.git", Type: "l", Kind: changes.Added}, "sub/.git"},
		{changes.Change{Path: ".config", Type: "l", Kind: changes.Added}, ".config"},
		{changes.Change{Path: ".git", Type: "d", Kind: changes.Deleted}, ".git"},
	} {
		got := ""
		if tt.c.From != "" {
			got = guardedAt(tt.c.From, false)
		}
		if got == "" {
			got = guardedAt(tt.c.Path, tt.c.Type == "d" && tt.c.Kind != changes.Deleted)
		}
		if got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.want)
		}
	}
}

// TestGuardedRepository: what makes a repository of a folder is guarded, whatever the folder is called, and so is what
// git obeys in one.
func TestGuardedRepository(t *testing.T) {
	lower := []string{"old.git/HEAD", "old.git/config", "src/config"}
	merged := append(slices.Clone(lower), "new/HEAD", "new/config", "new/hooks", "HEAD", "config", "a/b/HEAD",
		"a/b/commondir", "plain/HEAD")
	had := func(p string) bool { return slices.Contains(lower, p) }
	has := func(p string) bool { return slices.Contains(merged, p) }
	for p, want := range map[string]string{
		"new/HEAD": "new/HEAD", "HEAD": "HEAD", "a/b/commondir": "a/b/commondir",
		"new/hooks/post-checkout": "new/hooks", "new/config": "new/config", "config": "config",
		"old.git/HEAD": "", "old.git/refs/heads/x": "", "old.git/config": "old.git/config",
		"old.git/hooks/x": "old.git/hooks", "old.git/commondir": "old.git/commondir",
		"old.git/objects/ab/config": "",
		"src/config":                "", "src/HEAD": "src/HEAD", "new/src/main.go": "", "new/refs/heads/main": "",
		"plain/HEAD": "",
		"plain/head": "",
	} {
		if got := guardedRepository(p, true, has, had); got != want {
			t.Errorf("%s: %q, want %q", p, got, want)
		}
	}
	if got := guardedRepository("new/HEAD", false, has, had); got != "" {
		t.Errorf("taken away: %q", got)
	}
}
