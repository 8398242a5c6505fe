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

// TestWorkspaceTransaction: what a sandbox does in a workspace of mode overlay stays there until it is applied, all of
// it or some; what somebody else has changed, and what the user's programs obey, is left alone.
func TestWorkspaceTransaction(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	world.Needs(t, "git")
	w := world.New(t)
	dir := w.Sub(t, "project")
	for name, text := range map[string]string{"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "sub/c.txt": "c\n",
		".git/config": "mine\n"} {
		w.Sub(t, filepath.Join("project", filepath.Dir(name)))
		world.Write(t, filepath.Join(dir, name), text)
	}
	before := world.List(t, dir)
	c := w.Connect(t)
	sb := w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", "box", "--", "sh", "-euc",
		"sed -i s/two/2/ a.txt; rm b.txt; mkdir new; echo n >new/n; mv sub/c.txt sub/d.txt; echo evil >.git/config; mkdir -p .git/hooks; echo x >.git/hooks/h")
	if got := world.List(t, dir); got != before {
		t.Errorf("the folder was touched:\n%s", got)
	}
	d, err := c.DiffWorkspace(t.Context(), api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb},
		Unified: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range d.Changes {
		got = append(got, ch.Kind+" "+ch.Path+" "+ch.Guarded+ch.Conflict)
	}
	want := []string{"modified .git/config .git/config", "added .git/hooks .git/hooks", "added .git/hooks/h .git/hooks",
		"modified a.txt ", "deleted b.txt ", "added new ", "added new/n ", "renamed sub/d.txt "}
	if !slices.Equal(got, want) || !strings.Contains(d.Diff, "-two\n+2\n") || d.Path != dir {
		t.Errorf("%q, want %q\n%+v", got, want, d)
	}

	// Some of it; the digest of another diff; what the sandbox has changed since.
	world.Apply(t, w, dir, 0, "box", "a.txt")
	if text := world.Read(t, filepath.Join(dir, "a.txt")); text != "one\n2\nthree\n" {
		t.Errorf("a.txt: %q", text)
	}
	if _, err := c.ApplyWorkspace(t.Context(),
		api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb},
			Digest: d.Digest}); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("an old digest: %v", err)
	}
	// Somebody else changes what the sandbox has removed.
	world.Write(t, filepath.Join(dir, "b.txt"), "mine now\n")
	out := world.Apply(t, w, dir, 1, "box")
	out.Says(t, "b.txt", "changed meanwhile", ".git/hooks", "name it")
	if text := world.Read(t, filepath.Join(dir, "b.txt")); text != "mine now\n" {
		t.Errorf("b.txt: %q", text)
	}
	if text := world.Read(t, filepath.Join(dir, ".git/config")); text != "mine\n" {
		t.Errorf(".git/config: %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/c.txt")); err == nil ||
		world.Read(t, filepath.Join(dir, "sub/d.txt")) != "c\n" || world.Read(t, filepath.Join(dir, "new/n")) != "n\n" {
		t.Errorf("not applied: %s", world.List(t, dir))
	}
	world.Apply(t, w, dir, 0, "box", ".git/hooks")
	if world.Read(t, filepath.Join(dir, ".git/hooks/h")) != "x\n" {
		t.Error("what was named is not applied")
	}
	world.Apply(t, w, dir, 0, "--force", "box", "b.txt")
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err == nil {
		t.Error("force did nothing")
	}

	// The rest is thrown away, inside as well.
	w.OK(t, "workspace", "discard", "box")
	if got := w.OK(t, "workspace", "diff", "--names", "box"); strings.Contains(got, ".git") {
		t.Errorf("left: %q", got)
	}
	if got := w.OK(t, "exec", "box", "cat", ".git/config"); got != "mine\n" {
		t.Errorf("inside: %q", got)
	}
	w.Run(t, "workspace", "diff", "box", "../x").Want(t, 125).Says(t, "no path in the workspace")
	w.Run(t, "workspace", "diff", "box", "nothing").Want(t, 125).Says(t, "nothing was changed at nothing")
	w.OK(t, "rm", "-f", "box")

	w.Create(t, "--name", "none", "host")
	w.Run(t, "workspace", "diff", "none").Want(t, 125).Says(t, "is in mode none", "PATH:overlay")
	w.OK(t, "rm", "-f", "none")
	w.Create(t, "--name", "rw", "--workspace", dir, "host")
	world.Apply(t, w, dir, 125, "rw").Says(t, "is in mode rw", "PATH:overlay")
	w.OK(t, "rm", "-f", "rw")
}

// TestWorkspaceStates: a sandbox that runs, is paused, or is dead; what it does after an apply is applied again.
func TestWorkspaceStates(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	world.Needs(t)
	w := world.New(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "a"), "a\n")
	w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	for _, state := range []string{"running", "paused", "stopped"} {
		w.OK(t, "exec", "box", "--", "sh", "-c", "echo "+state+" >a; echo x >"+state)
		switch state {
		case "paused":
			w.OK(t, "pause", "box")
		case "stopped":
			w.OK(t, "kill", "box")
		}
		if got := w.OK(t, "workspace", "diff", "--names", "box"); !strings.Contains(got, state) ||
			strings.Contains(got, "changed meanwhile") {
			t.Errorf("%s: %q", state, got)
		}
		world.Apply(t, w, dir, 0, "box")
		if got := world.Read(t, filepath.Join(dir, "a")); got != state+"\n" {
			t.Errorf("%s: %q", state, got)
		}
		if got := w.OK(t, "workspace", "diff", "box"); got != "" {
			t.Errorf("%s: left %q", state, got)
		}
	}
	w.OK(t, "rm", "-f", "box")
}

// TestWorkspaceHostile: what root inside prepares stays inside, or comes out as what it is and with no rights.
func TestWorkspaceHostile(t *testing.T) {
	t.Parallel()
	world.Needs(t)
	w := world.New(t)
	outside := w.Sub(t, "outside")
	world.Write(t, filepath.Join(outside, "secret"), "secret\n")
	dir := w.Sub(t, "project")
	w.Sub(t, "project/d")
	world.Write(t, filepath.Join(dir, "d/secret"), "mine\n")
	world.Write(t, filepath.Join(dir, "f"), "f\n")
	w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", "box", "--", "sh", "-euc", `rm -r d; ln -s `+outside+` d; rm f; ln -s ../outside/secret f
mkfifo pipe; printf x >'new
line'; printf x >"$(printf 'esc\033[31m')"; printf x >'..x'; printf x >setuid; chmod 6755 setuid; mknod dev c 1 3 2>/dev/null || true; mkdir -p sub/.git; echo x >sub/.git/config`)
	out := world.Apply(t, w, dir, 1, "box")
	out.Says(t, "pipe", "stay in the sandbox", "sub/.git/config", "name it")
	if strings.ContainsRune(out.Stdout+out.Stderr, 0x1b) {
		t.Errorf("an escape sequence came through: %q", out.Stdout)
	}
	if got := world.Read(t, filepath.Join(outside, "secret")); got != "secret\n" {
		t.Errorf("outside: %q", got)
	}
	if target, err := os.Readlink(filepath.Join(dir, "d")); err != nil || target != outside {
		t.Errorf("d: %q, %v", target, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "setuid")); err != nil || st.Mode() != 0o755 {
		t.Errorf("setuid: %v, %v", st, err)
	}
	for _, name := range []string{"new\nline", "esc\x1b[31m", "..x"} {
		if got := world.Read(t, filepath.Join(dir, name)); got != "x" {
			t.Errorf("%q: %q", name, got)
		}
	}
	for _, name := range []string{"pipe", "dev", "sub/.git/config"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
	world.Apply(t, w, dir, 0, "box", "sub/.git/config")
	w.OK(t, "workspace", "discard", "box")
	if got := w.OK(t, "exec", "box", "ls", "-A"); strings.Contains(got, "pipe") {
		t.Errorf("discarded: %q", got)
	}
	w.OK(t, "rm", "-f", "box")
}

// TestWorkspaceSummary: hutch run says what would be lost, or where it is.
func TestWorkspaceSummary(t *testing.T) {
	t.Parallel()
	world.Needs(t)
	w := world.New(t)
	dir := w.Sub(t, "project")
	run := func(args ...string) world.Result {
		return w.Run(t, append([]string{"run", "--workspace", dir + ":overlay"}, args...)...)
	}
	run("--", "sh", "-c", "echo x >a; mkdir b").Want(t, 0).
		Says(t, "2 added", "went with the sandbox", "--keep keeps them")
	if out := run("--", "true").Want(t, 0); out.Stderr != "" {
		t.Errorf("of nothing: %q", out.Stderr)
	}
	if out := run("--json", "--", "touch", "a").Want(t, 0); out.Stderr != "" {
		t.Errorf("with --json: %q", out.Stderr)
	}
	run("--keep", "--name", "box", "--", "touch", "a").Want(t, 0).Says(t, "1 added", "hutch workspace apply")
	world.Apply(t, w, dir, 0, "box")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	w.OK(t, "rm", "-f", "box")
}

// TestWorkspaceFolder: what is handed over must be the workspace's folder; root's is written to by no other way.
func TestWorkspaceFolder(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir, other := w.Sub(t, "project"), w.Sub(t, "other")
	w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", "box", "touch", "a")
	w.Run(t, "workspace", "apply", "--folder", other, "box").Want(t, 125).Says(t, "not the folder")
	if os.Getuid() == 0 { // whose command line knows the folder by its own note alone
		if err := os.RemoveAll(filepath.Join(w.Root(), "lent")); err != nil {
			t.Fatal(err)
		}
		w.Run(t, "workspace", "apply", "box").Want(t, 125).Says(t, "read-only for the daemon", "--folder")
	}
	for _, d := range []string{dir, other} {
		if got := world.List(t, d); got != d+"\n" {
			t.Errorf("touched: %q", got)
		}
	}
	w.OK(t, "workspace", "apply", "--folder", dir, "box")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	w.OK(t, "rm", "-f", "box")
}
