package supervisor

import (
	"path"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestMakeRules: a guarded name, what is below it and what is above it are not made; but a folder above may be, but
// .git.
func TestMakeRules(t *testing.T) {
	r := NewRules(&guestapi.Guard{Roots: []guestapi.GuardRoot{
		{Path: "/workspace", Own: []string{"Deep/in/it"}}, {Path: "/srv/app", Unguarded: []string{".vscode"}},
	}})
	const made, empty, refused = "made", "as an empty folder", "refused"
	for at, want := range map[string]string{
		"/workspace/.vscode": refused, "/workspace/.VSCode": refused, "/workspace/.vscode/x/y": refused,
		"/workspace/.vscode2": made, "/workspace/x/.vscode": refused,
		"/workspace/node_modules/x/.vscode": made, "/workspace/node_modules/x/.git": refused,
		"/workspace/.git": refused, "/workspace/a/b/.git": refused, "/workspace/.git/hooks": refused,
		"/workspace/.git/hooks/x": refused, "/workspace/.git/index": made, "/workspace/.gitignore": made,
		"/workspace/.config": empty, "/workspace/.config/fish": refused, "/workspace/.config/x": made,
		"/workspace/deep": empty, "/workspace/deep/in": empty, "/workspace/deep/in/it": refused,
		"/.vscode": made, "/workspace2/.vscode": made, "/tmp/workspace/.vscode": made, "/workspace/x": made,
		"/srv/app/.vscode": made, "/srv/app/.idea": refused, "/srv/.idea": made,
	} {
		s := &spot{fd: -1, dir: path.Dir(at), name: path.Base(at)}
		got := made
		switch file, folder := r.refuses(s, false), r.refuses(s, true); {
		case folder:
			got = refused
		case file:
			got = empty
		}
		if got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
	if tops := strings.Join(r.Tops(), " "); tops != "workspace srv" {
		t.Errorf("the folders of / that hold one are %q", tops)
	}
}

// TestUnescape reads paths as mountinfo has them.
func TestUnescape(t *testing.T) {
	for s, want := range map[string]string{`/a`: "/a", `/a\040b\134\011`: "/a b\\\t", `/a\`: `/a\`, `/a\04`: `/a\04`,
		`\999`: `\999`, ``: ""} {
		if got := unescape(s); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
}

// FuzzMakeRules: whatever a folder is called, no way is found by which a guarded name could be made a step at a time.
func FuzzMakeRules(f *testing.F) {
	f.Add("/workspace/.git", "hooks")
	f.Add("/workspace", ".Vscode")
	f.Add("/workspace/.vscode (deleted)", "x")
	f.Add("/workspaCe", ".Vscode")
	f.Add("/workspace/a/b", ".git")
	r := NewRules(&guestapi.Guard{Roots: []guestapi.GuardRoot{{Path: "/workspace"}}})
	f.Fuzz(func(t *testing.T, dir, name string) {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || name == "" || name == "." || name == ".." ||
			strings.Contains(name, "/") {
			return
		}
		s := &spot{fd: -1, dir: dir, name: name}
		at := strings.ToLower(path.Join(dir, name)) + "/"
		guarded := strings.HasPrefix(dir+"/", "/workspace/") &&
			(strings.Contains(at, "/.git/hooks/") || strings.HasSuffix(at, "/.git/") ||
				strings.Contains(at, "/.vscode/") && !strings.Contains(at, "/node_modules/") &&
					!strings.Contains(at, "/site-packages/"))
		refused := false
		cost.Of(t, len(dir)+len(name), func() { refused = r.refuses(s, false) })
		if guarded && !refused || refused && !strings.HasPrefix(dir+"/", "/workspace/") {
			t.Errorf("%q %q: refused %v", dir, name, refused)
		}
	})
}
