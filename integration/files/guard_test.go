package files_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestGuard: what programs of the user's run from a workspace cannot be changed in it, taken away or
// moved aside, whoever tries; the rest can, and the same tools do it with --unguard.
func TestGuard(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	for _, mode := range []api.GuardNew{api.GuardTell, api.GuardAuto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			testGuard(t, mode)
		})
	}
}

func testGuard(t *testing.T, mode api.GuardNew) {
	w := world.New(t)
	dir := w.Sub(t, "work")
	for name, text := range map[string]string{
		".git/hooks/pre-commit": "#!/bin/sh\n", ".git/config": "[core]\n", ".git/HEAD": "ref: x\n",
		".vscode/tasks.json": "{}\n", ".mcp.json": "{}\n", "own/x": "x\n", "given": "x\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(dir, name), text)
	}
	attempts := []struct{ script, errno string }{
		{"echo x >>.git/config", "Read-only"},
		{"echo x >.git/hooks/pre-commit", "Read-only"},
		{"echo x >.git/hooks/post-merge", "Read-only"},
		{"chmod +x .git/hooks/pre-commit", "Read-only"},
		{"rm .git/hooks/pre-commit", "Read-only"},
		{"mv .git/config .git/c", "busy"},
		{"rm .git/config", "busy"},
		{"mv .git/hooks .git/h", "busy"},
		{"mv .git .g", "busy"},
		{"touch y; mv -T y .mcp.json", "busy"},
		{"mkdir .y; mv -T .vscode .y", "busy"},
		{"touch .vscode/launch.json", "Read-only"},
		{"ln given .git/hooks/x", "Read-only"},
	}
	sb := w.Create(t, "--workspace", dir, "--guard-new", string(mode), "host")
	for _, a := range attempts {
		r := w.Run(t, "exec", sb, "--", "sh", "-c", "LC_ALL=C; export LC_ALL; "+a.script)
		// Where names that are not there are refused, a rename over one that is there is, too.
		moved := mode == api.GuardAuto && strings.Contains(a.script, "mv -T y ") &&
			strings.Contains(r.Stderr, "Read-only")
		if r.Code == 0 || !moved && !strings.Contains(strings.ToLower(r.Stderr), strings.ToLower(a.errno)) {
			t.Errorf("%s: exit %d: %s", a.script, r.Code, r.Stderr)
		}
	}
	for _, argv := range [][]string{{"umount", ".git/config"}, {"mount", "-o", "remount,rw", "/workspace/.mcp.json"}} {
		if r := w.Run(t, append([]string{"exec", sb, "--"}, argv...)...); r.Code == 0 {
			t.Errorf("%q", argv)
		}
	}
	// What is not named can be written, beside it too.
	w.OK(t, "exec", sb, "--", "sh", "-c",
		"echo more >>.git/HEAD; touch .git/index; echo y >>given; echo y >own/y; mv own other")
	if got := world.Read(t, filepath.Join(dir, ".git/HEAD")); got != "ref: x\nmore\n" {
		t.Errorf("%q", got)
	}
	// The files API meets the same wall.
	if r := w.Feed(t, "x", "cp", "-", sb+":/workspace/.mcp.json"); r.Code == 0 {
		t.Errorf("cp: exit 0")
	}
	if r := w.Run(t, "exec", sb, "--", "cat", "/run/hutch/policy.txt"); !strings.Contains(r.Stdout,
		"can only be read; policy.json lists it") {
		t.Errorf("%s", r.Stdout)
	}
	w.OK(t, "rm", "-f", sb)

	// The twin.
	for name := range map[string]bool{".git/c": true, ".git/h": true, ".y": true, "y": true, ".g": true} {
		_ = os.RemoveAll(filepath.Join(dir, name))
	}
	sb = w.Create(t, "--workspace", dir, "--unguard", "all", "--guard", "given", "host")
	for _, script := range []string{"echo x >>.git/config", "echo x >.git/hooks/post-merge", "mv .git .g; mv .g .git",
		"touch y; mv -T y .mcp.json", "rm -r .vscode"} {
		w.OK(t, "exec", sb, "--", "sh", "-c", script)
	}
	if r := w.Run(t, "exec", sb, "--", "sh", "-c", "LC_ALL=C; echo x >given"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "Read-only") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	for _, args := range [][]string{
		{"--guard", "../x", "--workspace", dir}, {"--unguard", "x", "--workspace", dir},
		{"--guard", "x", "--workspace", dir + ":ro"}, {"--guard", "x"},
	} {
		r := w.Run(t, append(append([]string{"run"}, args...), "host", "--", "true")...)
		if r.Code != 125 {
			t.Errorf("%q: exit %d", args, r.Code)
		}
	}
}

// TestUnguarded: what turns up under a guarded name is reported with the command behind which it was
// found, once, also after a new hutchd; without a file of it in the host's folder.
func TestUnguarded(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "work")
	for _, name := range []string{".git/hooks", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	world.Write(t, filepath.Join(dir, ".git/config"), "[core]\n")
	sb := w.Create(t, "--workspace", dir, "--guard-new", "tell", "host")
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Fatalf("the host's folder has %v, %v", list, err)
	}
	run := func(script string, want ...string) {
		t.Helper()
		res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Argv: []string{"sh", "-c", script}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range res.Unguarded {
			got = append(got, u.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	run("true")
	run("mkdir .vscode; echo {} >.mcp.json; touch mcp.json", "/workspace/.mcp.json", "/workspace/.vscode")
	run("true")
	run("ln -s elsewhere .claude", "/workspace/.claude")
	// The host replaces a file, as editors and git do: its guard is gone with it.
	world.Write(t, filepath.Join(dir, "c"), "[core]\n")
	if err := os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, ".git/config")); err != nil {
		t.Fatal(err)
	}
	run("true", "/workspace/.git/config")
	r := w.Run(t, "exec", sb, "--", "touch", ".envrc")
	if !strings.Contains(r.Stderr, "/workspace/.envrc is not guarded") ||
		!strings.Contains(r.Stderr, "--unguard .envrc") {
		t.Errorf("%s", r.Stderr)
	}
	// A folder above that is a file, such as .git of a worktree, is guarded itself.
	tree := w.Sub(t, "tree")
	world.Write(t, filepath.Join(tree, ".git"), "gitdir: /elsewhere\n")
	if r := w.Run(t, "run", "--workspace", tree, "host", "--", "sh", "-c", "LC_ALL=C; echo x >.git"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "Read-only") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}

// TestGuardShared: sandboxes that write to a folder guard the same names of it, whatever they call the folder, or one
// is refused; one that reads it, has a copy of it, or comes later does not count.
func TestGuardShared(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) world.Result {
		return w.Run(t, append(append([]string{"run"}, args...), "host", "true")...)
	}
	w.OK(t, "create", "--name", "git", "--workspace", dir, "--unguard", "git-new", "host")
	for _, args := range [][]string{
		{"--workspace", dir}, {"-v", dir + ":/x:rw"}, {"--workspace", filepath.Join(dir, "sub")},
		{"--workspace", dir, "--unguard", "git-new", "--unguard", ".envrc"}, {"--workspace", dir, "--unguard", "all"},
	} {
		inside(args...).Want(t, 125).Says(t, "guards other names of it", "hutch stop sb_")
	}
	for _, args := range [][]string{
		{"--workspace", dir, "--unguard", "git-new"}, {"--workspace", dir + ":overlay"}, {"--workspace", dir + ":ro"},
		{"--workspace", w.Sub(t, "other")},
	} {
		inside(args...).Want(t, 0)
	}
	inside("--workspace", dir, "--unguard", "git-new", "--landlock", "off").Want(t, 125).
		Says(t, "that are not there yet")
	other := w.Path("alias")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	c := w.Connect(t) // which resolves no links
	_, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host",
		Workspace: &api.Workspace{Path: filepath.Join(other, "sub"), Mode: api.ModeRW}}}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "guards other names of it") && os.Geteuid() != 0 {
		t.Errorf("by a link: %v", err)
	}
	w.OK(t, "stop", "-t", "0", "git")
	w.OK(t, "create", "--name", "plain", "--workspace", dir, "host")
	w.Run(t, "start", "git").Want(t, 125).Says(t, "guards other names of it")
	w.OK(t, "rm", "-f", "plain")
	w.OK(t, "start", "git")
	w.OK(t, "rm", "-f", "git")
}

// TestUnguardUnknown: a name that is not guarded cannot be taken off, and the refusal says where the names are.
func TestUnguardUnknown(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	for _, args := range [][]string{{"--workspace", dir}, {"-v", dir + ":/x:rw"}} {
		w.Run(t, append(append([]string{"run"}, args...), "--unguard", ".gi", "host", "true")...).Want(t, 125).
			Says(t, `".gi" is not guarded`, "hutch config guard")
	}
	w.Run(t, "run", "--unguard", ".git", "host", "true").Want(t, 125).Says(t, "-v SRC:DST:rw")
	w.OK(t, "config", "guard")
	if !strings.Contains(w.OK(t, "config", "guard", "--json"), `".git/hooks"`) {
		t.Error("config guard --json has no .git/hooks")
	}
}

// TestFolderNotes: a folder that is a link is given as what it leads to, and that is told; and so is a file of the
// command line that the sandbox can change for the next one.
func TestFolderNotes(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	link := w.Path("link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	env := world.Write(t, filepath.Join(dir, "env"), "A=b\n")
	run := func(args ...string) world.Result {
		return w.Run(t, append(append([]string{"run"}, args...), "host", "true")...)
	}
	run("--workspace", link).Want(t, 0).Says(t, "is a link: the sandbox gets "+dir)
	run("--workspace", dir, "--env-file", env).Want(t, 0).Says(t, "the sandbox can change "+env+" for the next run")
	for _, r := range []world.Result{run("--workspace", dir), run("--workspace", dir+":overlay", "--env-file", env),
		run("-v", dir+":/x:ro", "--env-file", env)} {
		if r.Code != 0 || r.Stderr != "" {
			t.Errorf("exit %d: %s", r.Code, r.Stderr)
		}
	}
}
