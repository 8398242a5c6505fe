package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// TestMain runs the tests in a user and a mount namespace of their own, where this user may mount what hutchd does.
func TestMain(m *testing.M) {
	const inside = "HUTCH_TEST_IN_USERNS"
	if os.Getenv(inside) != "" {
		os.Exit(leak.Main(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		os.Stderr.WriteString("in a user namespace: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// guarded is a folder of the host's with a guard, as a sandbox has it.
type guarded struct {
	Folders
	host string // the folder
	at   string // its mount
}

// newGuarded makes one with files, by their names, mounted as m says at /workspace. A name that ends in a slash is a
// folder.
func newGuarded(t *testing.T, m api.Mount, files map[string]string) *guarded {
	t.Helper()
	g := &guarded{host: t.TempDir()}
	dir := t.TempDir()
	g.at = filepath.Join(dir, "0")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		g.make(t, name, files[name])
	}
	must(t, os.Mkdir(g.at, 0o700), unix.Mount(g.host, g.at, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(g.at, unix.MNT_DETACH)) })
	m.Source, m.Target = g.host, "/workspace"
	if m.Mode == "" {
		m.Mode = api.ModeRW
	}
	g.Folders = For([]api.Mount{m}, dir)
	return g
}

// make makes a file, or a folder, on the host.
func (g *guarded) make(t *testing.T, name, text string) {
	t.Helper()
	p := filepath.Join(g.host, name)
	if strings.HasSuffix(name, "/") {
		must(t, os.MkdirAll(p, 0o755))
		return
	}
	must(t, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644))
}

// cover covers it.
func (g *guarded) cover(t *testing.T) {
	t.Helper()
	must(t, g.Cover(t.Context(), "/workspace"))
}

// write writes to a file of the mount, as the sandbox would.
func (g *guarded) write(name string) error {
	f, err := os.OpenFile(filepath.Join(g.at, name), os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		err = f.Close()
	}
	return err
}

// fakeGuest is a PID 1 that says what was made, once.
type fakeGuest struct {
	made []string
	more bool
	err  error
}

func (f *fakeGuest) Made(context.Context) ([]string, bool, error) {
	made := f.made
	f.made = nil
	return made, f.more, f.err
}

// TestCover: what is there under a guarded name cannot be written, nor moved away with the folders above it, and all
// else can, by each of its names.
func TestCover(t *testing.T) {
	project := map[string]string{
		".git/HEAD": "", ".git/config": "[core]\n\thooksPath = githooks\n[include]\n\tpath = ../more.conf\n",
		".git/hooks/pre-commit": "", "githooks/pre-push": "", "more.conf": "[alias]\n", ".vscode/tasks.json": "",
		"src/main.go": "", "bare/HEAD": "", "bare/config": "", "bare/refs/": "", "sub/.git/hooks/x": "",
		"node_modules/p/.vscode/tasks.json": "", "own/file": "", "own/other": "",
	}
	refuse := api.Mount{GuardNew: api.GuardRefuse, Guard: []string{"own/file"}}
	for _, tt := range []struct {
		name  string
		mount api.Mount
		write map[string]error
		move  map[string]error
	}{
		{"refuse", refuse, map[string]error{
			".git/config": unix.EROFS, ".git/hooks/new": unix.EROFS, "githooks/pre-push": unix.EROFS,
			"more.conf": unix.EROFS, ".vscode/tasks.json": unix.EROFS, "bare/config": unix.EROFS,
			"sub/.git/hooks/x": unix.EROFS, "own/file": unix.EROFS, "link": unix.EROFS,
			".git/HEAD": nil, "src/main.go": nil, "new": nil, "bare/refs/new": nil, "own/other": nil,
			"node_modules/p/.vscode/tasks.json": nil,
		}, map[string]error{".git": unix.EBUSY, ".vscode": unix.EBUSY, "bare": unix.EBUSY, "own": unix.EBUSY,
			"src": nil}},
		{"unguarded", api.Mount{Unguarded: []string{".git/hooks", ".vscode"}}, map[string]error{
			".git/hooks/new": nil, ".vscode/tasks.json": nil, ".git/config": unix.EROFS,
		}, map[string]error{".git": unix.EBUSY, ".vscode": nil}},
		{"none", api.Mount{Unguarded: []string{api.AllNames}}, map[string]error{".git/config": nil},
			map[string]error{".git": nil}},
		{"read-only", api.Mount{Mode: api.ModeRO}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuarded(t, tt.mount, project)
			must(t, os.Link(filepath.Join(g.host, ".git/config"), filepath.Join(g.host, "link")))
			g.cover(t)
			if want := len(tt.write) > 1; (len(g.Folders) > 0) != want {
				t.Errorf("%d guards", len(g.Folders))
			}
			for name, want := range tt.write {
				if err := g.write(name); !errors.Is(err, want) {
					t.Errorf("write %s: %v, want %v", name, err, want)
				}
			}
			for name, want := range tt.move {
				at := filepath.Join(g.at, name)
				if err := os.Rename(at, at+".moved"); !errors.Is(err, want) {
					t.Errorf("move %s: %v, want %v", name, err, want)
				}
			}
			if found := g.Look(&fakeGuest{}); tt.name == "refuse" && len(found) > 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestCoverWorktree: what a repository's own files say of worktrees and submodules is followed, and what a submodule
// leaves without its HEAD stays covered.
func TestCoverWorktree(t *testing.T) {
	g := newGuarded(t, api.Mount{GuardNew: api.GuardRefuse}, map[string]string{
		".git/HEAD": "", ".git/config": "[core]\n\thooksPath = hk\n", ".git/worktrees/w/HEAD": "",
		".git/worktrees/w/commondir": "../..", "w/hk/pre-push": "",
		".git/modules/m/config": "", ".git/modules/n/HEAD": "", ".git/modules/n/hooks/x": "", ".git/modules/data": "",
	})
	g.make(t, "w/.git", "gitdir: "+g.host+"/.git/worktrees/w\n")
	g.make(t, ".git/worktrees/w/gitdir", g.host+"/w/.git\n")
	g.cover(t)
	for name, want := range map[string]error{
		"w/.git": unix.EROFS, ".git/worktrees/w/commondir": unix.EROFS, "w/hk/pre-push": unix.EROFS,
		".git/modules/m/config": unix.EROFS, ".git/modules/n/hooks/x": unix.EROFS, ".git/modules/data": nil,
		".git/modules/n/packed-refs": nil,
	} {
		if err := g.write(name); !errors.Is(err, want) {
			t.Errorf("write %s: %v, want %v", name, err, want)
		}
	}
}

// TestCoverTooMuch: a folder that is too deep, or whose configuration names too much, is refused, and so is one whose
// making was given up; what cannot be read is counted.
func TestCoverTooMuch(t *testing.T) {
	deep := newGuarded(t, api.Mount{}, map[string]string{strings.Repeat("d/", maxDepth+2): ""})
	if err := deep.Cover(t.Context(), "/workspace/"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("deep: %v", err)
	}
	var config strings.Builder
	for i := range maxNamed + 1 {
		fmt.Fprintf(&config, "[include]\n\tpath = c%d\n", i)
	}
	many := newGuarded(t, api.Mount{}, map[string]string{".git/HEAD": "", ".git/config": config.String()})
	if err := many.Cover(t.Context(), "/workspace"); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("many: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newGuarded(t, api.Mount{}, nil).Cover(gone, "/workspace"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if err := deep.Cover(t.Context(), "/elsewhere"); err != nil {
		t.Errorf("a folder without a guard: %v", err)
	}
}

// TestLook: names that turn up are reported, each once, with who has made them where the sandbox cannot.
func TestLook(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mount api.Mount
		why   string
	}{
		{"tell", api.Mount{GuardNew: api.GuardTell}, "it is new, or the host has replaced it"},
		{"refuse", api.Mount{GuardNew: api.GuardRefuse}, "the host has made or replaced it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuarded(t, tt.mount, map[string]string{".envrc": "", "elsewhere/x": ""})
			g.cover(t)
			if found := g.Look(&fakeGuest{}); len(found) > 0 {
				t.Fatalf("before: %v", found)
			}
			g.make(t, ".vscode/tasks.json", "")
			g.make(t, ".npmrc", "")
			must(t, os.Symlink("elsewhere", filepath.Join(g.host, ".idea")))
			got := map[string]string{}
			for _, u := range g.Look(&fakeGuest{}) {
				got[u.Path] = u.Why
				if u.Hint == "" {
					t.Errorf("%s: no hint", u.Path)
				}
			}
			for name, why := range map[string]string{
				"/workspace/.vscode": tt.why, "/workspace/.npmrc": tt.why,
				"/workspace/.idea": "it is, or lies behind, a symlink",
			} {
				if got[name] != why+", so the sandbox can write it" {
					t.Errorf("%s: %q; all: %v", name, got[name], got)
				}
			}
			if again := g.Look(&fakeGuest{}); len(again) > 0 {
				t.Errorf("reported again: %v", again)
			}
		})
	}
}

// TestMade: repositories that PID 1 has made are reported by the next look, also where it says too little.
func TestMade(t *testing.T) {
	m := api.Mount{GuardNew: api.GuardRefuse, Unguarded: []string{"git-new"}}
	g := newGuarded(t, m, map[string]string{"a/.git/HEAD": ""})
	g.cover(t)
	g.MadeRepository("/workspace/a")
	g.MadeRepository("/elsewhere")
	found := g.Look(&fakeGuest{made: []string{"/workspace/a", "/workspace/gone"}})
	if len(found) != 2 || found[0].Path != "/workspace/a" ||
		!strings.HasPrefix(found[0].Why, "it is a new repository") ||
		found[1].Path != "/workspace/gone" || !strings.Contains(found[1].Why, "moved or removed since") {
		t.Errorf("found %+v", found)
	}
	for _, tt := range []struct {
		pid1 *fakeGuest
		why  string
	}{
		{&fakeGuest{more: true}, "more repositories were made in it than can be listed: 0 are"},
		{&fakeGuest{err: errors.New("gone")}, "which repositories were made in it is not known: gone"},
	} {
		if found := g.Look(tt.pid1); len(found) != 1 || found[0].Path != "/workspace" || found[0].Why != tt.why {
			t.Errorf("found %+v, want %q", found, tt.why)
		}
	}
	for i := range guestapi.MaxMade + 1 {
		g.MadeRepository(fmt.Sprintf("/workspace/%d", i))
	}
	if found := g.Look(&fakeGuest{}); len(found) != guestapi.MaxMade+1 {
		t.Errorf("%d reports of as many repositories as PID 1 can say", len(found))
	}
}

// TestExplain: a refusal says by which name, and how to allow it.
func TestExplain(t *testing.T) {
	m := api.Mount{GuardNew: api.GuardRefuse, Guard: []string{"own"}}
	g := newGuarded(t, m, map[string]string{".git/HEAD": "", ".git/config": "[core]\n\thooksPath = hk\n",
		"bare/HEAD": "", "bare/config": "", "new/HEAD": ""})
	g.cover(t)
	for name, want := range map[string][2]string{
		"own/x":               {"own is guarded, as was asked for", "leave out --guard own"},
		".vscode/tasks.json":  {".vscode is guarded: programs of yours take instructions from it", "--unguard .vscode"},
		"hk/pre-push":         {"hk is guarded: the configuration of a repository names it", "--unguard all"},
		"bare/config":         {"config is guarded: programs of yours take instructions from it", "--unguard .git"},
		".config":             {"it holds what is guarded: ", "--unguard .config/"},
		"src/.git/HEAD":       {"", ""},
		"plain":               {"", ""},
		"new/config":          {"config is guarded: programs of yours take instructions from it", "--unguard .git"},
		"other/../.git/hooks": {".git/hooks is guarded: programs", "--unguard .git/hooks"},
	} {
		r, ok := g.Explain("/workspace/"+name, unix.EROFS)
		if ok != (want[0] != "") || !strings.HasPrefix(r.Why, want[0]) || !strings.HasPrefix(r.How, want[1]) {
			t.Errorf("%s: %+v, %v", name, r, ok)
		}
		if ok && (r.By != "guard" || r.Rule != "guard of the folder") {
			t.Errorf("%s: by %s, %s", name, r.By, r.Rule)
		}
	}
	if r, _ := g.Explain("/workspace/own", unix.EBUSY); r.By != "mount" {
		t.Errorf("EBUSY is by %s", r.By)
	}
	if _, ok := g.Explain("/elsewhere/.vscode", unix.EROFS); ok {
		t.Error("explains what lies in no guarded folder")
	}
}

// TestSettle: which guard there is follows from what is asked for and what the kernel has, and is a wall.
func TestSettle(t *testing.T) {
	landlock, none := Host{LandlockABI: 3}, Host{LandlockReason: "no Landlock"}
	rw := func(change func(*api.Spec)) *api.Spec {
		sp := &api.Spec{Workspace: &api.Workspace{Path: "/w", Mode: api.ModeRW},
			Mounts: []api.Mount{{Source: "/m", Target: "/m", Mode: api.ModeRW, Unguarded: []string{api.AllNames}}}}
		change(sp)
		return sp
	}
	for _, tt := range []struct {
		name   string
		host   Host
		change func(*api.Spec)
		want   api.GuardNew
		code   api.Code
	}{
		{"auto", landlock, func(*api.Spec) {}, api.GuardRefuse, ""},
		{"tell", landlock, func(sp *api.Spec) { sp.Workspace.GuardNew = api.GuardTell }, api.GuardTell, ""},
		{"no kernel", none, func(*api.Spec) {}, api.GuardTell, ""},
		{"off", landlock, func(sp *api.Spec) { sp.Landlock = api.LandlockOff }, api.GuardTell, ""},
		{"custom", landlock, func(sp *api.Spec) { sp.SeccompProfile = "{}" }, api.GuardTell, ""},
		{"refuse", none, func(sp *api.Spec) { sp.Workspace.GuardNew = api.GuardRefuse }, "", api.Unavailable},
		{"unknown", landlock, func(sp *api.Spec) { sp.Workspace.Unguarded = []string{"x"} }, "", api.InvalidArgument},
		{"unknown in a mount", landlock, func(sp *api.Spec) { sp.Mounts[0].Unguarded = []string{"x"} }, "",
			api.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sp := rw(tt.change)
			asked := sp.Workspace
			if err := tt.host.Settle(sp); err != nil || tt.code != "" {
				if api.ErrorCode(err) != tt.code {
					t.Errorf("%v, want %s", err, tt.code)
				}
				return
			}
			if sp.Workspace.GuardNew != tt.want || sp.Mounts[0].GuardNew != "" || sp.Workspace == asked {
				t.Errorf("settled %q and %q", sp.Workspace.GuardNew, sp.Mounts[0].GuardNew)
			}
			mounts := []api.Mount{{Target: "/w", Mode: api.ModeRW, GuardNew: sp.Workspace.GuardNew}}
			w, ok := tt.host.Wall(sp, For(mounts, "/mnt"))
			if !ok || (w.Status == "yes") != (tt.want == api.GuardRefuse) || RefusesNew(mounts) != (w.Status == "yes") {
				t.Errorf("wall %+v, %v", w, ok)
			}
		})
	}
	if _, ok := landlock.Wall(&api.Spec{}, nil); ok {
		t.Error("a wall without a guard")
	}
}

// TestGuest: PID 1 knows the folders in which it makes names, and leaves out what others have in them.
func TestGuest(t *testing.T) {
	mounts := []api.Mount{
		{Target: "/w", Mode: api.ModeRW, GuardNew: api.GuardRefuse, Guard: []string{"own"},
			Unguarded: []string{".vscode"}},
		{Target: "/w/cache/", Mode: api.ModeTmpfs}, {Target: "/told", Mode: api.ModeRW, GuardNew: api.GuardTell},
	}
	g := For(mounts, "/mnt").Guest(mounts)
	if g == nil || len(g.Roots) != 1 || g.Roots[0].Path != "/w" ||
		!slices.Equal(g.Roots[0].Except, []string{"/w/cache"}) ||
		!slices.Equal(g.Roots[0].Own, []string{"own"}) || !slices.Equal(g.Roots[0].Unguarded, []string{".vscode"}) {
		t.Errorf("guest %+v", g)
	}
	if g := For(mounts[1:], "/mnt").Guest(mounts[1:]); g != nil {
		t.Errorf("guest %+v", g)
	}
	if names := Names(mounts, "/told"); !slices.Contains(names, ".git/hooks") || Names(mounts, "/none") != nil ||
		len(Names(mounts, "/w/cache/")) > 0 {
		t.Errorf("names %v", names)
	}
}
