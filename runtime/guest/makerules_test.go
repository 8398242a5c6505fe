package guest

import (
	"path"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestMakeRules: a guarded name, what is below it and what is above it are not made; but a folder above may be, but .git.
func TestMakeRules(t *testing.T) {
	r := newMakeRules(&guestapi.Guard{Root: "/workspace", Names: []string{".vscode", ".git/hooks", ".config/fish", "Deep/in/it"}})
	const made, empty, refused = "made", "as an empty folder", "refused"
	for at, want := range map[string]string{
		"/workspace/.vscode": refused, "/workspace/.VSCode": refused, "/workspace/.vscode/x/y": refused, "/workspace/.vscode2": made, "/workspace/x/.vscode": made,
		"/workspace/.git": refused, "/workspace/.git/hooks": refused, "/workspace/.git/hooks/x": refused, "/workspace/.git/index": made, "/workspace/.gitignore": made,
		"/workspace/.config": empty, "/workspace/.config/fish": refused, "/workspace/.config/x": made, "/workspace/deep": empty, "/workspace/deep/in": empty, "/workspace/deep/in/it": refused,
		"/.vscode": made, "/workspace2/.vscode": made, "/tmp/workspace/.vscode": made, "/workspace/x": made,
	} {
		s := &spot{dir: path.Dir(at), name: path.Base(at)}
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
}

// FuzzMakeRules: whatever a folder is called, no way is found by which a guarded name could be made a step at a time.
func FuzzMakeRules(f *testing.F) {
	f.Add("/workspace/.git", "hooks")
	f.Add("/workspace", ".Vscode")
	f.Add("/workspace/.vscode (deleted)", "x")
	r := newMakeRules(&guestapi.Guard{Root: "/workspace", Names: []string{".vscode", ".git/hooks"}})
	f.Fuzz(func(t *testing.T, dir, name string) {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
			return
		}
		s := &spot{dir: dir, name: name}
		at := lower(path.Join(dir, name)) + "/"
		guarded := strings.HasPrefix(at, "/workspace/.vscode/") || strings.HasPrefix(at, "/workspace/.git/hooks/") || at == "/workspace/.git/"
		refused := false
		cost.Of(t, len(dir)+len(name), func() { refused = r.refuses(s, false) })
		if strings.HasPrefix(dir+"/", "/workspace/") && refused != guarded {
			t.Errorf("%q %q", dir, name)
		}
	})
}
