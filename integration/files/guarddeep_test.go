package files_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// hostGit is git as the user has it on the host: what it is made to run leaves a mark in home.
type hostGit struct{ home string }

func newHostGit(t *testing.T) *hostGit {
	t.Helper()
	g := &hostGit{home: t.TempDir()}
	world.Write(t, filepath.Join(g.home, ".gitconfig"),
		"[user]\n\tname = x\n\temail = x@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[safe]\n\tdirectory = *\n")
	return g
}

// payload is configuration by which git leaves the mark.
const payload = `[core]
	bare = false
	worktree = .
	fsmonitor = \"touch $HOME/taken; false\"
	pager = \"touch $HOME/taken; cat\"
	sshCommand = \"touch $HOME/taken; false\"
[alias]
	st = !touch $HOME/taken
`

func (g *hostGit) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + g.home, "PATH=" + os.Getenv("PATH"), "GIT_PAGER=", "LC_ALL=C"}
	return cmd
}

func (g *hostGit) run(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := g.command(dir, args...).CombinedOutput(); err != nil {
		t.Fatalf("git %q in %s: %v: %s", args, dir, err, out)
	}
}

// taken runs what people and prompts run in each folder below dir, and reports whether that ran something of the
// folder's.
func (g *hostGit) taken(t *testing.T, dir string) bool {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == "objects" || d.Name() == "refs" || d.Name() == "logs" {
			return filepath.SkipDir
		}
		for _, args := range [][]string{{"status", "--short"}, {"rev-parse", "--is-inside-work-tree"},
			{"diff", "--stat"}, {"branch"}} {
			_ = g.command(p, args...).Run() // it may well fail
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(g.home, "taken"))
	return err == nil
}

// repositories makes a folder with all that git takes for a repository: one at the top with a submodule, a worktree and
// a repository that its index only names, and a bare one.
func (g *hostGit) repositories(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"", "source", "sub"} {
		at := filepath.Join(dir, sub)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		g.run(t, at, "init", "-q")
		world.Write(t, filepath.Join(at, "file"), "x\n")
		g.run(t, at, "add", "file")
		g.run(t, at, "commit", "-q", "-m", "x")
	}
	g.run(t, dir, "clone", "-q", "--bare", "source", "bare.git")
	g.run(t, dir, "submodule", "--quiet", "add", "./bare.git", "mod")
	g.run(t, dir, "add", "sub")
	g.run(t, dir, "worktree", "add", "-q", "tree")
	g.run(t, dir, "config", "core.hooksPath", "tools/hooks")
	g.run(t, dir, "config", "include.path", "../tools/more")
	if err := os.MkdirAll(filepath.Join(dir, "tools/hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(dir, "tools/hooks/pre-commit"), "#!/bin/sh\n")
	world.Write(t, filepath.Join(dir, "tools/more"), "[color]\n\tui = false\n")
	// Folders with a repository and other names, made after it.
	app := filepath.Join(dir, "app")
	g.run(t, dir, "clone", "-q", "bare.git", "app")
	for name, text := range map[string]string{".vscode/tasks.json": "{}", ".envrc": "x", "z/.idea/x": "x",
		"zz/.git": "gitdir: ../none"} {
		if err := os.MkdirAll(filepath.Join(app, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(app, name), text)
	}
	for _, sub := range []string{"scripts", "src1"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g.run(t, dir, "commit", "-q", "-a", "-m", "all")
	g.run(t, filepath.Join(dir, "sub"), "config", "core.hooksPath", "../tools/missing-hooks")
	g.run(t, filepath.Join(dir, "source"), "config", "filter.x.clean", "python3 ../scripts/monitor %f")
	g.run(t, filepath.Join(dir, "mod"), "config", "core.hooksPath", "hooks-of-mod")
	if err := os.Link(filepath.Join(dir, "sub/.git/config"), filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
}

// attacks are what an attacker tries who has read the documentation. Each of them alone gives the host's next git a
// program to run, or an editor, a shell or an agent one.
var attacks = []string{
	// What is there.
	`printf "$P" >>.git/config`, `printf "$P" >>sub/.git/config`, `printf "$P" >>.git/modules/mod/config`,
	`printf "$P" >>bare.git/config`, `printf "$P" >>source/.git/config`,
	`printf "$P" >>linked`, `printf "$P" >tools/more`, `echo x >tools/hooks/pre-commit`,
	`echo x >tools/hooks/post-checkout`, `rm tools/more`, `mv tools/hooks tools/h`,
	`echo "gitdir: ../evil" >tree/.git`, `echo "gitdir: ../evil" >mod/.git`, `rm mod/.git`, `mv tree/.git tree/g`,
	`echo ../../evil >.git/worktrees/tree/commondir`, `echo x >.git/worktrees/tree/gitdir`,
	`rm .git/worktrees/tree/commondir`,
	`mv sub/.git sub/g`, `rm -r sub/.git/hooks`, `mv .git .g`, `mv .git/modules/mod .git/modules/m`, `mv bare.git b`,
	`mv bare.git/hooks bare.git/h`, `sed -i s/x/y/ sub/.git/config`,
	// What is not there.
	`echo x >.git/hooks/post-index-change`, `echo x >sub/.git/hooks/post-checkout`,
	`echo x >bare.git/hooks/post-update`, `echo x >.git/modules/mod/hooks/pre-commit`,
	`printf "$P" >.git/config.worktree`, `printf "$P" >.git/worktrees/tree/config.worktree`,
	`printf "$P" >bare.git/config.worktree`, `printf "$P" >.git/modules/mod/config.worktree`,
	`echo ../evil >.git/commondir`, `echo ../evil >sub/.git/commondir`, `echo ../evil >bare.git/commondir`,
	`mkdir .git/modules/new`, `mkdir -p .git/worktrees/new`, `echo "* filter=x" >.git/info/attributes`,
	// Repositories that are not there.
	`mkdir plain && git init -q plain`, `mkdir -p a/b/c && git init -q a/b/c`, `git clone -q bare.git clone`,
	`git init -q --bare new.git`, `git clone -q --mirror bare.git mirror.git`, `git worktree add -q other`,
	`git submodule --quiet add ./bare.git mod2`, `mkdir plain2 && cp -r sub/.git plain2/.git`,
	`cp -r sub/.git stolen && mv stolen plain3`, `cp -r bare.git copy.git`,
	`mkdir -p x/objects x/refs && echo ref: refs/heads/main >x/HEAD && printf "$P" >x/config`,
	`mkdir -p y/objects y/refs && echo ref: refs/heads/main >y/HEAD && printf "$P" >y/config`,
	`mkdir z && echo ../bare.git >z/commondir && echo ref: refs/heads/main >z/HEAD`,
	`mkdir y2 && printf "$P" >y2/config && mkdir y2/objects y2/refs && echo ref: refs/heads/main >y2/HEAD`,
	`mkdir y3 && printf "$P" >y3/c && echo ref: refs/heads/main >y3/HEAD && mv y3/c y3/config`,
	`mkdir w w/refs w/objects w/hooks && echo ref: refs/heads/main >h && mv h w/HEAD`,
	`mkdir v v/refs && echo ref: refs/heads/main >v/HEAD && mkdir o && mv -T o v/hooks`,
	`mkdir u u/refs u/objects && printf "$P" >u/config && ln -s refs/heads/main u/HEAD`,
	`cd src1 && python3 -c "import socket; [socket.socket(socket.AF_UNIX).bind(n) for n in ('objects','refs')]" && echo ref: refs/heads/main >HEAD && printf "$P" >config`,
	// In the folders of repositories that are there.
	`mkdir -p .git/x/.git/objects`, `mkdir .git/x2 && mkdir .git/x2/.vscode`,
	`mkdir bare.git/main && echo x >bare.git/main/.envrc`,
	`mkdir -p .git/refs/remotes/r && echo ref: refs/heads/main >.git/refs/remotes/r/HEAD && printf "$P" >.git/refs/remotes/r/config`,
	`mkdir -p .git/refs/heads/.git`, `mkdir -p own && echo x >own/later`,
	`mv sub/.git/HEAD sub/.git/H; printf "$P" >>sub/.git/config; r=$?; mv sub/.git/H sub/.git/HEAD; exit $r`,
	`echo x >.git/lazygit.yml`,
	// Files that configuration names, and that are not there.
	`echo x >tools/missing-hooks`, `echo x >scripts/monitor`, `mkdir mod/hooks-of-mod`,
	// Ways out of dependencies.
	`mkdir -p node_modules/e/.vscode && ln -s node_modules/e demo`,
	`ln -s /workspace/node_modules/e2 demo2 && false || ln -s /srv/app/node_modules/e2 demo2`,
	`mkdir -p node_modules && ln -s e node_modules/l && python3 -c "import os; os.rename('node_modules/l', 'demo3')"`,
	`mkdir -p node_modules && ln -s /srv/app/node_modules/x node_modules/abs && ln -P node_modules/abs demo4`,
	// Beside repositories that are found first.
	`echo x >app/.vscode/tasks.json`, `echo x >app/.envrc`, `echo x >app/z/.idea/x`, `rm app/.envrc`,
	`echo x >app/zz/.git`,
	`mkdir t && echo "gitdir: ../evil" >t/.git`, `mkdir s && ln -s ../sub/.git s/.git`, `mkdir r && mkdir r/.GIT`,
	`mv sub sub2 && mkdir sub && git init -q sub; r=$?; rmdir sub; mv sub2 sub; exit $r`,
	`mkdir q && mkdir q/.hg && echo x >q/.hg/hgrc`,
	// Others than git.
	`mkdir -p deep/er/.vscode`, `echo x >deep.code-workspace`, `mkdir deep1 && echo {} >deep1/x.code-workspace`,
	`echo {} >.devcontainer.json`, `mkdir d2 && echo {} >d2/.devcontainer.json`, `mkdir .husky`,
	`mkdir d3 && echo x >d3/.envrc`, `mkdir d4 && mkdir d4/.claude`, `echo {} >.mcp.json`, `mkdir .zed`,
	`mkdir .gemini`, `echo x >.pre-commit-config.yaml`, `echo x >lefthook.yml`, `echo x >.mise.toml`,
	`echo x >.nvim.lua`, `echo x >.exrc`,
	`echo x >.npmrc`, `echo x >.yarnrc.yml`, `mkdir .cargo && echo x >.cargo/config.toml`,
	`echo x >rust-toolchain.toml`, `echo x >go.work`, `mkdir .mvn`, `echo x >.gdbinit`, `echo x >.tool-versions`,
	`echo x >.bashrc`, `mkdir d5 && echo x >d5/.Rprofile`,
	`mkdir d6 && cd d6 && echo x >.EnvRC`, `mkdir .config && mkdir .config/fish`, `mkdir -p n/git && mv -T n .config`,
	`python3 -c "import os; os.mkdir('n1'); os.mkdir('n1/node_modules'); os.mkdir('n1/node_modules/p'); os.mkdir('n1/node_modules/p/.vscode'); os.rename('n1/node_modules/p', 'n1/p')"`,
	`mkdir -p n2/node_modules/p/.vscode && mv n2/node_modules n2/n && test -e n2/n/p/.vscode`,
	`mkdir -p n3/node_modules && mkdir n3/node_modules/.git`,
}

// TestGuardDeep: whatever a sandbox does in a folder with repositories of all kinds, the host's git runs nothing of it,
// and no name that others obey comes to be, at any depth; every refusal is one of the guard's. Work in the repositories
// that are there goes on.
func TestGuardDeep(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	world.NeedsPython(t)
	w := world.New(t)
	g := newHostGit(t)
	dir := w.Sub(t, "work")
	g.repositories(t, dir)
	mounted := w.Sub(t, "mounted")
	g.repositories(t, mounted)
	if g.taken(t, dir) {
		t.Fatal("the mark is there before anybody has done something")
	}
	sb := w.Create(t, "--workspace", dir, "-v", mounted+":/srv/app:rw", "--guard", "own/later", "-e", "P="+
		strings.ReplaceAll(payload, `\"`, `"`), "host")
	for n, at := range []string{"/workspace", "/srv/app"} {
		for i, script := range attacks {
			if testing.Short() && i%2 != n { // each in one of them
				continue
			}
			r := w.Run(t, "exec", "-w", at, sb, "--", "sh", "-c",
				"LC_ALL=C HOME=/tmp GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; export LC_ALL HOME GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0; "+script)
			said := strings.ToLower(r.Stderr)
			known := strings.Contains(said, "read-only") || strings.Contains(said, "busy") ||
				strings.Contains(said, "cross-device") || strings.Contains(script, "test -e")
			if r.Code == 0 || !known {
				t.Errorf("%s: %s: exit %d: %s", at, script, r.Code, r.Stderr)
			}
		}
	}
	for _, d := range []string{dir, mounted} {
		if g.taken(t, d) {
			t.Errorf("the host's git has run something of %s", d)
		}
	}
	// The twin: what people do in repositories that are there, and what is guarded nowhere.
	commit := "git -c user.name=x -c user.email=x@example.com commit -q"
	for _, script := range []string{
		"echo y >>file && git add file && " + commit + " -m y", "cd sub && echo y >>file && " + commit +
			" -a -m y && git stash list && git gc -q && git branch b && git checkout -q b && " + commit +
			" --allow-empty -m z && git checkout -q main && git merge -q b && git rebase -q HEAD~1",
		"cd source && git tag v1 && echo z >>file && git stash -q && git stash pop -q && " + commit + " -a -m z",
		"git -C bare.git update-ref refs/heads/new HEAD && git -C bare.git gc -q",
		"mkdir -p node_modules/p/.vscode && echo {} >node_modules/p/.npmrc && mv node_modules/p node_modules/q && rm -r node_modules", "mkdir -p deep2/refs deep2/objects && echo x >deep2/config && mv deep2 deep3 && rm -r deep3", "mkdir head config && echo x >Head && rm -r head config Head", "mkdir hh && echo x >hh/HEAD && rm -r hh", "git fetch -q ./source && git branch config && git branch -d config", "cd app && git fetch -q ../bare.git && git remote set-head origin main",
		"mkdir -p .config/other && echo x >.gitignore && mkdir .github && mkdir .cargo2",
		"python3 -m venv --without-pip .venv",
	} {
		if r := w.Run(t, "exec", "-w", "/workspace", sb, "--", "sh", "-c",
			"LC_ALL=C HOME=/tmp GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; export LC_ALL HOME GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0; "+script); r.Code != 0 {
			t.Errorf("%s: exit %d: %s", script, r.Code, r.Stderr)
		}
	}
	w.OK(t, "rm", "-f", sb)
	g.run(t, dir, "status")
}

// TestGuardRepository: a repository is made only where that was asked for, and is reported then; what is guarded in
// those that were there stays so. A refusal names the flag.
func TestGuardRepository(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	w := world.New(t)
	g := newHostGit(t)
	dir := w.Sub(t, "work")
	g.run(t, dir, "init", "-q")
	c := w.Connect(t)
	refused := w.Create(t, "--workspace", dir, "host")
	res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: refused, Argv: []string{"git", "init", "-q", "new"}},
		nil, nil)
	if err != nil || res.ExitCode == 0 || len(res.Unguarded) > 0 {
		t.Errorf("%v %+v", err, res)
	}
	if !slices.ContainsFunc(res.Denials, func(d api.Denial) bool {
		return d.Target == "create /workspace/new/.git" && d.By == "guard" &&
			strings.Contains(d.HowToAllow, "--unguard git-new") && strings.Contains(d.HowToAllow, ":overlay")
	}) {
		t.Errorf("%+v", res.Denials)
	}
	w.OK(t, "rm", "-f", refused)
	sb := w.Create(t, "--workspace", dir, "--unguard", "git-new", "host")
	res, err = c.ExecRun(t.Context(),
		api.ExecParams{Sandbox: sb,
			Argv: []string{"sh", "-c",
				"git init -q new2 && git init -q --bare b.git && git -C new2 config user.name x && echo x >new2/.git/hooks/pre-commit && cp -r new2 new3"}}, nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%v %+v", err, res)
	}
	var told []string
	for _, u := range res.Unguarded {
		told = append(told, u.Path)
	}
	slices.Sort(told)
	if want := []string{"/workspace/b.git", "/workspace/new2/.git", "/workspace/new3/.git"}; !slices.Equal(told, want) {
		t.Errorf("reported %q, want %q", told, want)
	}
	for _, script := range []string{"git config user.name x", "echo x >.git/hooks/pre-commit",
		"echo x >.git/config.worktree", "mkdir .vscode"} {
		if r := w.Run(t, "exec", "-w", "/workspace", sb, "--", "sh", "-c", "LC_ALL=C; export LC_ALL; "+
			script); r.Code == 0 {
			t.Errorf("%s: exit 0", script)
		}
	}
}

// TestGuardHeadless: a sandbox may remove the HEAD of a submodule's or a worktree's repository, which is history. A
// later one cannot write what git obeys there all the same, so that the host can put the HEAD back. That there are
// submodules is nothing to report.
func TestGuardHeadless(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	w := world.New(t)
	g := newHostGit(t)
	dir := w.Sub(t, "work")
	g.repositories(t, dir)
	c := w.Connect(t)
	run := func(script string) api.ExecResult {
		t.Helper()
		sb := w.Create(t, "--workspace", dir, "-e", "P="+strings.ReplaceAll(payload, `\"`, `"`), "host")
		defer w.OK(t, "rm", "-f", sb)
		res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb,
			Argv: []string{"sh", "-c", "LC_ALL=C; export LC_ALL; " + script}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := run("git -C mod -c safe.directory='*' status"); res.ExitCode != 0 || len(res.Unguarded) > 0 {
		t.Errorf("exit %d, unguarded %+v: %s", res.ExitCode, res.Unguarded, res.Stderr)
	}
	heads := []string{".git/modules/mod/HEAD", ".git/worktrees/tree/HEAD"}
	kept := map[string]string{}
	for _, head := range heads {
		kept[head] = world.Read(t, filepath.Join(dir, head))
	}
	if res := run("rm " + strings.Join(heads, " ")); res.ExitCode != 0 {
		t.Fatalf("exit %d: %s", res.ExitCode, res.Stderr)
	}
	for _, script := range []string{
		`printf "$P" >>.git/modules/mod/config`, `rm .git/modules/mod/config`,
		`echo x >.git/modules/mod/hooks/pre-commit`,
		`mv .git/modules/mod/hooks .git/modules/mod/h`, `echo x >.git/modules/mod/HEAD`, `mv .git/modules gone`,
		`echo ../evil >.git/worktrees/tree/commondir`, `rm .git/worktrees/tree/commondir`,
		`echo x >.git/worktrees/tree/HEAD`,
	} {
		res := run(script)
		said := strings.ToLower(res.Stderr)
		if res.ExitCode == 0 || !strings.Contains(said, "read-only") && !strings.Contains(said, "busy") {
			t.Errorf("%s: exit %d: %s", script, res.ExitCode, res.Stderr)
		}
	}
	for head, text := range kept {
		world.Write(t, filepath.Join(dir, head), text)
	}
	if g.taken(t, dir) {
		t.Error("the host's git has run something")
	}
	g.run(t, filepath.Join(dir, "mod"), "status")
	g.run(t, filepath.Join(dir, "tree"), "status")
}

// TestGuardArrives: what comes out of a sandbox as a whole, by cp and by workspace apply, brings the host's git no
// configuration, no hooks and no repository without a name for it; of a .git its history comes. Who names it gets it.
func TestGuardArrives(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	g := newHostGit(t)
	dir := w.Sub(t, "work")
	sb := w.Create(t, "--workspace", dir+":overlay", "-e", "P="+strings.ReplaceAll(payload, `\"`, `"`), "host")
	w.OK(t, "exec", "-w", "/workspace", sb, "--", "sh", "-c", `set -e; HOME=/tmp; export HOME; git init -q repo; cd repo
git config user.name x; git config user.email x@example.com; echo x >file; git add file; git commit -q -m x; git clone -q --bare . ../bare.git; cd ..
printf "$P" >>repo/.git/config; printf "$P" >>bare.git/config; echo "touch \$HOME/taken" >repo/.git/hooks/post-checkout; chmod +x repo/.git/hooks/post-checkout
mkdir -p repo/deep/.vscode repo/node_modules/p/.vscode; mkdir -p there/hooks; printf "$P" >there/config; echo x >there/hooks/post-update; mkdir -p repo/.git/objects/e/.git; printf "$P" >repo/.git/objects/e/.git/config; echo {} >repo/deep/.vscode/tasks.json; echo {} >repo/node_modules/p/.vscode/x; echo x >repo/.envrc; ln repo/.envrc repo/same; echo x >repo/.bashrc; ln -s /etc repo/deep/.idea`)
	out := t.TempDir()
	g.run(t, out, "init", "-q", "--bare", "there") // one that the user has
	if err := errors.Join(os.Remove(filepath.Join(out, "there/config")),
		os.RemoveAll(filepath.Join(out, "there/hooks"))); err != nil {
		t.Fatal(err)
	}
	r := w.Run(t, "cp", sb+":/workspace/.", out)
	if r.Code != 0 || !strings.Contains(r.Stderr, "repo/.git (but its history)") ||
		!strings.Contains(r.Stderr, "repo/deep/.vscode") || !strings.Contains(r.Stderr, "--unguard all") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	if g.taken(t, out) {
		t.Error("cp: the host's git has run something of the copy")
	}
	for name, want := range map[string]bool{
		"repo/file": true, "repo/.git/HEAD": true, "bare.git/objects": true,
		"repo/.bashrc": true, "repo/node_modules/p/.vscode": false, "bare.git/config": false, "there/config": false,
		"there/hooks": false, "repo/.git/config": false, "repo/.git/hooks": false, "repo/.envrc": false,
		"repo/deep/.vscode": false,
	} {
		if _, err := os.Lstat(filepath.Join(out, name)); (err == nil) != want {
			t.Errorf("cp: %s: %v", name, err)
		}
	}
	g.run(t, filepath.Join(out, "repo"), "log", "-1") // its history is there
	// What a home folder has counts in that, and in what it has.
	home := t.TempDir()
	w.OK(t, "exec", sb, "--", "sh", "-c",
		"mkdir -p /tmp/h/.config/fish /tmp/h/.config/other; echo x >/tmp/h/.bashrc; echo x >/tmp/h/.config/fish/x; echo x >/tmp/h/.config/other/x")
	if err := os.Mkdir(filepath.Join(home, ".config"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{sb + ":/tmp/h/.", home},
		{sb + ":/tmp/h/.config/.", filepath.Join(home, ".config")}, {sb + ":/tmp/h/.", home + "2"}} {
		cmd := w.Command(append([]string{"cp"}, args...)...)
		cmd.Env = append(cmd.Env, "HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	for name, want := range map[string]bool{".bashrc": false, ".config/fish": false, ".config/other/x": true, "../" +
		filepath.Base(home) + "2/.bashrc": true} {
		if _, err := os.Lstat(filepath.Join(home, name)); (err == nil) != want {
			t.Errorf("cp to the home folder: %s: %v", name, err)
		}
	}
	// Who names it gets it.
	for name, args := range map[string][]string{
		".git/config": {sb + ":/workspace/repo", "--unguard", ".git"},
		".envrc":      {sb + ":/workspace/repo", "--unguard", "all"},
	} {
		to := filepath.Join(t.TempDir(), "to")
		w.OK(t, append(append([]string{"cp"}, args...), to)...)
		if _, err := os.Lstat(filepath.Join(to, name)); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	w.OK(t, "cp", sb+":/workspace/repo/.envrc", filepath.Join(t.TempDir(), "envrc"))
	if r := w.Run(t, "cp", "--unguard", "nothing", sb+":/workspace/.", out); r.Code != 125 && r.Code != 2 {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	// Workspaces.
	if os.Getuid() == 0 {
		w.Run(t, "workspace", "apply", "--folder", dir, sb)
	} else {
		w.Run(t, "workspace", "apply", sb)
	}
	if _, err := os.Lstat(filepath.Join(dir, "repo/file")); err != nil {
		t.Errorf("nothing was applied: %v", err)
	}
	if g.taken(t, dir) {
		t.Error("apply: the host's git has run something of the folder")
	}
	if _, err := os.Lstat(filepath.Join(dir, "bare.git/config")); err == nil {
		t.Error("apply: the configuration of a bare repository was brought")
	}
}
