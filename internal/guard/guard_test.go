package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestRows: the data is what the commands and the table of SECURITY.md say it is.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows {
		if r.Name == "" || r.Who == "" || r.When == "" || r.Source == "" ||
			!slices.Contains([]Depth{Top, Project, Any}, r.Depth) {
			t.Errorf("%+v is not complete", r)
		}
		if seen[lower(r.Name)] || strings.HasPrefix(r.Name, "/") ||
			strings.Contains(strings.TrimPrefix(r.Name, "*"), "*") {
			t.Errorf("%s is there twice, or is no name", r.Name)
		}
		if r.Report && r.Depth != Top {
			t.Errorf("%s is reported in folders that nobody looks into", r.Name)
		}
		seen[lower(r.Name)] = true
	}
	if len(Rows) < 60 {
		t.Errorf("%d rows", len(Rows))
	}
}

// TestPath: which paths are guarded, and how they are called.
func TestPath(t *testing.T) {
	for _, tt := range []struct {
		own, unguarded []string
		path           string
		want           string // "" is not guarded
		folder         bool   // an empty one
	}{
		{path: "main.go"}, {path: ".gitignore"}, {path: "x/.git2/hooks"}, {path: "a.code-workspace.txt"},
		{path: ".git", want: NewRepository}, {path: "a/b/.git", want: NewRepository},
		{path: "a/.GIT", want: NewRepository, folder: true},
		{path: ".git/index"}, {path: ".git/HEAD"}, {path: ".git/refs/heads/hooks"}, {path: "x/.git/objects/ab/config"},
		{path: ".git/hooks/pre-commit", want: ".git/hooks"}, {path: "a/b/.git/hooks", want: ".git/hooks"},
		{path: "a/.Git/Config", want: ".git/config"},
		{path: "node_modules/x/.git/config", want: ".git/config"}, {path: ".git/info", want: ".git/info/attributes"},
		{path: ".git/info", folder: true},
		{path: ".vscode", want: ".vscode"}, {path: ".vscode/tasks.json", want: ".vscode"},
		{path: "a/b/.vscode/x", want: ".vscode"},
		{path: "node_modules/x/.vscode/x"}, {path: "a/Node_Modules/.npmrc"}, {path: "lib/site-packages/.idea"},
		{path: "node_modules2/.idea", want: ".idea"},
		{path: "x.code-workspace", want: "*.code-workspace"}, {path: "a/X.Code-Workspace", want: "*.code-workspace"},
		{path: ".bashrc", want: ".bashrc"}, {path: "a/.bashrc"}, {path: ".config", folder: true},
		{path: ".config", want: ".config/git"}, {path: ".config/fish/x", want: ".config/fish"},
		{path: "a/.config/fish"}, {path: ".venv/bin/python"}, {path: ".cargo/registry/x"},
		{path: "a/.cargo/config.toml", want: ".cargo/config.toml"},
		{path: "deep/in/it", own: []string{"deep/in/it"}, want: "deep/in/it"},
		{path: "x/deep/in/it", own: []string{"deep/in/it"}},
		{path: "deep", own: []string{"deep/in/it"}, want: "deep/in/it"}, {path: "deep/in", own: []string{"deep/in/it"},
			folder: true},
		{path: ".git/hooks/x", unguarded: []string{".git"}}, {path: "a/.git", unguarded: []string{".git"}},
		{path: "a/.git", unguarded: []string{NewRepository}},
		{path: "a/.git/config", unguarded: []string{NewRepository}}, {path: ".idea", unguarded: []string{NewRepository},
			want: ".idea"},
		{path: ".git/hooks", unguarded: []string{".git/config"}, want: ".git/hooks"},
		{path: ".git/config", unguarded: []string{".git/config"}},
		{path: ".vscode", unguarded: []string{All}}, {path: "given", own: []string{"given"}, unguarded: []string{All},
			want: "given"},
	} {
		m, ok := New(tt.own, tt.unguarded).Path(tt.path, tt.folder)
		if m.Name != tt.want || ok != (tt.want != "") {
			t.Errorf("%q, own %q, unguarded %q: %+v, want %q", tt.path, tt.own, tt.unguarded, m, tt.want)
		}
		if ok && !strings.HasPrefix(tt.path, m.Path) {
			t.Errorf("%q: %q is no beginning of it", tt.path, m.Path)
		}
	}
	deep := New(nil, nil).Deep()
	for _, p := range []string{"a/.bashrc", "node_modules/x/.vscode"} {
		if _, ok := deep.Path(p, false); !ok {
			t.Errorf("%s comes out", p)
		}
	}
	var none *Set
	if !none.Empty() || none.Names() != nil || !none.NewRepositories() {
		t.Error("no set guards something")
	}
}

// TestRepository: names in the folder of a repository that is not called .git, and what makes one of a folder.
func TestRepository(t *testing.T) {
	s, free := New(nil, nil), New(nil, []string{NewRepository})
	for p, want := range map[string]string{
		"hooks/x": ".git/hooks", "config": ".git/config", "Config": ".git/config", "commondir": ".git/commondir",
		"info/attributes": ".git/info/attributes",
		"modules/x":       ".git/modules", "worktrees/x": ".git/worktrees", "HEAD": "", "objects/ab/cd": "",
		"index.lock":  "",
		"config.lock": "", "refs/hooks": "",
	} {
		if m, _ := s.Repository(p, false); m.Name != want {
			t.Errorf("%s: %+v, want %q", p, m, want)
		}
		if m, _ := free.Repository(p, false); m.Name != want && !strings.HasPrefix(p, "modules/") &&
			!strings.HasPrefix(p, "worktrees/") {
			t.Errorf("%s with %s: %+v, want %q", p, NewRepository, m, want)
		}
	}
	for p, want := range map[string]string{ // what is in there, and may be entered
		"x/.git/config": NewRepository, "x/.vscode/tasks.json": ".vscode", "main/.envrc": ".envrc",
		"refs/heads/x.code-workspace": "", "refs/heads/.git": NewRepository, "logs/refs/heads/go.work": "",
	} {
		if m, _ := s.Repository(p, false); m.Name != want && (want != NewRepository || m.Name != ".git/config") {
			t.Errorf("%s: %+v, want %q", p, m, want)
		}
	}
	with := func(names ...string) func(string) bool {
		return func(n string) bool { return slices.Contains(names, n) }
	}
	for _, tt := range []struct {
		name string
		has  func(string) bool
		want bool
	}{
		{"HEAD", with("objects", "refs"), false}, {"HEAD", with("config"), true}, {"HEAD", with("hooks"), true},
		{"HEAD", with("commondir"), true},
		{"config", with("HEAD"), true}, {"commondir", with("HEAD"), true}, {"hooks", with("HEAD"), true},
		{"config.worktree", with("HEAD"), true}, {"config", with("objects", "refs"), false},
		{"HEAD", with(), false}, {"head", with("config"), false}, {"Config", with("HEAD"), false},
		{"refs", with("HEAD", "config"), false},
		{"head", with("config", "CONFIG"), true}, {"Config", with("HEAD", "head"), true}, // where case does not count
	} {
		if got := s.Completes(tt.name, tt.has); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if free.Completes(tt.name, tt.has) {
			t.Errorf("%s with %s", tt.name, NewRepository)
		}
	}
}

// TestMakesRepository: the last of what git wants makes a repository, and what it obeys beside a HEAD, whose other
// parts nobody may have seen coming.
func TestMakesRepository(t *testing.T) {
	with := func(names ...string) func(string) bool {
		return func(n string) bool { return slices.Contains(names, n) }
	}
	for _, tt := range []struct {
		name string
		has  func(string) bool
		want bool
	}{
		{"HEAD", with("HEAD", "objects", "refs"), true}, {"refs", with("HEAD", "objects", "refs"), true},
		{"objects", with("HEAD", "objects"), false}, {"commondir", with("HEAD", "commondir"), true},
		{"HEAD", with("HEAD", "config"), true}, {"hooks", with("HEAD", "hooks"), true},
		{"HEAD", with("HEAD"), false}, {"index", with("HEAD", "objects", "refs", "config"), false},
	} {
		if got := MakesRepository(tt.name, tt.has); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestWords: words that agents obey are guarded in changes alone, in any folder and in any case.
func TestWords(t *testing.T) {
	for _, p := range []string{"CLAUDE.md", "a/b/agents.md", "node_modules/x/GEMINI.md",
		".github/copilot-instructions.md", ".clinerules/a"} {
		if m, ok := New(nil, nil).Arrives(p, false); ok {
			t.Errorf("%s cannot be written: %+v", p, m)
		}
		if _, ok := Changes().Arrives(p, false); !ok {
			t.Errorf("%s is applied", p)
		}
	}
	for _, p := range []string{"README.md", "x-CLAUDE.md", "CLAUDE.md.txt", ".github/workflows/ci.yml"} {
		if m, ok := Changes().Arrives(p, false); ok {
			t.Errorf("%s is not applied: %+v", p, m)
		}
	}
}

// TestArrives: of a .git its history comes, and no repository within.
func TestArrives(t *testing.T) {
	s := New(nil, nil).Deep()
	for p, want := range map[string]string{
		".git": ".git", ".git/HEAD": "", ".git/objects/ab/cdef": "", ".git/refs/heads/go.work": "",
		".git/config": ".git/config", "a/.git/description": "a/.git/description",
		".git/objects/e/.git/config":  ".git/objects/e/.git/config",
		".git/refs/heads/.git/config": ".git/refs/heads/.git/config",
		".git/objects/e/.vscode":      ".git/objects/e/.vscode",
		"a/.bashrc":                   "a/.bashrc", "node_modules/x/.vscode/y": "node_modules/x/.vscode",
		"x/main.go": "",
	} {
		if m, ok := s.Arrives(p, false); m.Path != want || ok != (want != "") {
			t.Errorf("%s: %+v, want %q", p, m, want)
		}
	}
	if m, ok := s.Arrives("a/.git", true); ok {
		t.Errorf("the folder itself: %+v", m)
	}
}

// TestCandidates finds the names for which a folder has to be looked at.
func TestCandidates(t *testing.T) {
	s := New(nil, nil)
	for _, tt := range []struct{ in, entry, want string }{
		{"", "main.go", ""}, {"", ".vscode", ".vscode"}, {"a", ".VSCode", ".VSCode"}, {"node_modules/a", ".vscode", ""},
		{"a", ".bashrc", ""}, {"", ".bashrc", ".bashrc"},
		{"a", "x.code-workspace", "x.code-workspace"},
		{"node_modules", ".hg", ".hg/hgrc .hg/hgrc-not-shared .hg/sharedpath"},
	} {
		if got := strings.Join(s.Candidates(tt.in, tt.entry), " "); got != tt.want {
			t.Errorf("%s in %q: %q, want %q", tt.entry, tt.in, got, tt.want)
		}
	}
}

// configs are configurations of git's, and what git takes from them is asked of git itself.
var configs = []string{
	"[core]\n\thooksPath = .githooks\n", "[CORE]\nHOOKSPATH=x", "[core]hooksPath=\"a b\" ; c\n",
	"[core]\n hooksPath = a\\\n b\n", "[core]\nhooksPath = a b  # c\n",
	"[core]\nhooksPath\n", "[core]\nhooksPath =\n", "[core]\nbare = false\n[core]\nhooksPath = one\nhooksPath = two\n",
	"[include]\npath = ../x\n[includeIf \"gitdir:~/x/\"]\n\tpath = y\n",
	"[alias \"core\"]\nhooksPath = no\n", "[core \"x\"]\nhooksPath = no\n",
	"; [core]\n# hooksPath = no\n[core]\r\nhooksPath = crlf\r\n", "[core]\nhooksPath = \"q\\\"uo\\\\te\\t\"\n",
	"\ufeff[core]\nhooksPath = bom\n", "[core]\n\thooksPath = a;b\n", "[ core ]\nhooksPath = spaced\n",
	"[core]\nhooksPath = \" lead\"  \n",
}

// TestGitConfig compares with git.
func TestGitConfig(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	for _, text := range configs {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ask := func(pattern string) (values []string, valid bool) {
			out, err := exec.Command("git", "config", "--no-includes", "--file", file, "-z", "--get-regexp", pattern).
				Output()
			var exit *exec.ExitError
			if err != nil && (!asExit(err, &exit) || exit.ExitCode() > 1) {
				return nil, false
			}
			for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
				if _, value, ok := strings.Cut(entry, "\n"); ok && value != "" {
					values = append(values, value)
				}
			}
			return values, true
		}
		got := GitConfig([]byte(text))
		hooks, valid := ask(`^core\.hookspath$`)
		includes, _ := ask(`^include(if\..*)?\.path$`)
		if valid && (!slices.Equal(got.Hooks, hooks) || !slices.Equal(got.Includes, includes)) {
			t.Errorf("%q: %+v, git has %q and %q", text, got, hooks, includes)
		}
		if !valid {
			t.Logf("%q: git does not read it", text)
		}
	}
}

func asExit(err error, to **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError)
	*to = e
	return ok
}

func FuzzGitConfig(f *testing.F) {
	for _, text := range configs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cost.Of(t, len(text), func() { GitConfig([]byte(text)) })
	})
}

// FuzzPath: a path is guarded however it is spelled, and so is all below it.
func FuzzPath(f *testing.F) {
	f.Add("a/.git/hooks/x", "y")
	f.Add("x.code-workspace", "b")
	f.Add("node_modules/.vscode", "c")
	s := New([]string{"own/x"}, nil)
	f.Fuzz(func(t *testing.T, p, below string) {
		if p == "" || filepath.Clean("/"+p) != "/"+p || strings.Contains(below, "/") || below == "" || below == "." ||
			below == ".." {
			return
		}
		var m Match
		ok := false
		cost.Of(t, len(p), func() { m, ok = s.Path(p, false) })
		if !ok || m.Above || m.Name == NewRepository { // in a repository that is there much can be written
			return
		}
		if _, ok := s.Path(p+"/"+below, false); !ok {
			t.Errorf("%q is guarded, and %q in it is not", p, below)
		}
		if _, ok := s.Path(strings.ToUpper(p), false); !ok && strings.ToLower(strings.ToUpper(p)) == lower(p) {
			t.Errorf("%q is guarded, and not in upper case", p)
		}
	})
}

// TestGitCommands finds the files of a folder that configuration has git run.
func TestGitCommands(t *testing.T) {
	n := GitConfig([]byte("[core]\n\tfsmonitor = ./tools/mon --x\n\tworktree = ../../../mod\n[filter \"x\"]\n\tclean = \"python3 scripts/clean.py %f | sort\"\n[credential]\n\thelper = !sub/helper\n[alias]\n\tx = !a/b\n[core]\n\tpager = less\n"))
	if want := []string{"./tools/mon", "scripts/clean.py", "sub/helper"}; !slices.Equal(n.Commands, want) ||
		n.Worktree != "../../../mod" {
		t.Errorf("%+v, want %q", n, want)
	}
}
