package sandbox

import (
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
		if got := guardedBy(&tt.c); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.c, got, tt.want)
		}
	}
}
