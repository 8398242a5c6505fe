package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestWorkspaceTransaction: what a sandbox does in a workspace of mode overlay stays there until it is applied, all of it or
// some; what somebody else has changed, and what the user's programs obey, is left alone.
func TestWorkspaceTransaction(t *testing.T) {
	t.Parallel()
	needs(t, "git")
	w := newWorld(t)
	dir := w.sub(t, "project")
	for name, text := range map[string]string{"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "sub/c.txt": "c\n", ".git/config": "mine\n"} {
		w.sub(t, filepath.Join("project", filepath.Dir(name)))
		write(t, filepath.Join(dir, name), text)
	}
	before := list(t, dir)
	c := w.connect(t)
	sb := w.create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.ok(t, "exec", "box", "--", "sh", "-euc", "sed -i s/two/2/ a.txt; rm b.txt; mkdir new; echo n >new/n; mv sub/c.txt sub/d.txt; echo evil >.git/config; mkdir -p .git/hooks; echo x >.git/hooks/h")
	if got := list(t, dir); got != before {
		t.Errorf("the folder was touched:\n%s", got)
	}
	d, err := c.DiffWorkspace(t.Context(), api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb}, Unified: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range d.Changes {
		got = append(got, ch.Kind+" "+ch.Path+" "+ch.Guarded+ch.Conflict)
	}
	want := []string{"modified .git/config .git/config", "added .git/hooks .git/hooks", "added .git/hooks/h .git/hooks", "modified a.txt ", "deleted b.txt ", "added new ", "added new/n ", "renamed sub/d.txt "}
	if !slices.Equal(got, want) || !strings.Contains(d.Diff, "-two\n+2\n") || d.Path != dir {
		t.Errorf("%q, want %q\n%+v", got, want, d)
	}

	// Some of it; the digest of another diff; what the sandbox has changed since.
	apply(t, w, dir, 0, "box", "a.txt")
	if text := read(t, filepath.Join(dir, "a.txt")); text != "one\n2\nthree\n" {
		t.Errorf("a.txt: %q", text)
	}
	if _, err := c.ApplyWorkspace(t.Context(), api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb}, Digest: d.Digest}); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("an old digest: %v", err)
	}
	// Somebody else changes what the sandbox has removed.
	write(t, filepath.Join(dir, "b.txt"), "mine now\n")
	out := apply(t, w, dir, 1, "box")
	out.says(t, "b.txt", "changed meanwhile", ".git/hooks", "name it")
	if text := read(t, filepath.Join(dir, "b.txt")); text != "mine now\n" {
		t.Errorf("b.txt: %q", text)
	}
	if text := read(t, filepath.Join(dir, ".git/config")); text != "mine\n" {
		t.Errorf(".git/config: %q", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "sub/c.txt")); err == nil || read(t, filepath.Join(dir, "sub/d.txt")) != "c\n" || read(t, filepath.Join(dir, "new/n")) != "n\n" {
		t.Errorf("not applied: %s", list(t, dir))
	}
	apply(t, w, dir, 0, "box", ".git/hooks")
	if read(t, filepath.Join(dir, ".git/hooks/h")) != "x\n" {
		t.Error("what was named is not applied")
	}
	apply(t, w, dir, 0, "--force", "box", "b.txt")
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err == nil {
		t.Error("force did nothing")
	}

	// The rest is thrown away, inside as well.
	w.ok(t, "workspace", "discard", "box")
	if got := w.ok(t, "workspace", "diff", "--names", "box"); strings.Contains(got, ".git") {
		t.Errorf("left: %q", got)
	}
	if got := w.ok(t, "exec", "box", "cat", ".git/config"); got != "mine\n" {
		t.Errorf("inside: %q", got)
	}
	w.run(t, "workspace", "diff", "box", "../x").want(t, 125).says(t, "no path in the workspace")
	w.run(t, "workspace", "diff", "box", "nothing").want(t, 125).says(t, "nothing was changed at nothing")
	w.ok(t, "rm", "-f", "box")

	w.create(t, "--name", "none", "host")
	w.run(t, "workspace", "diff", "none").want(t, 125).says(t, "is in mode none", "PATH:overlay")
	w.ok(t, "rm", "-f", "none")
	w.create(t, "--name", "rw", "--workspace", dir, "host")
	apply(t, w, dir, 125, "rw").says(t, "is in mode rw", "PATH:overlay")
	w.ok(t, "rm", "-f", "rw")
}

// TestWorkspaceStates: a sandbox that runs, is paused, or is dead; what it does after an apply is applied again.
func TestWorkspaceStates(t *testing.T) {
	t.Parallel()
	needs(t)
	w := newWorld(t)
	dir := w.sub(t, "project")
	write(t, filepath.Join(dir, "a"), "a\n")
	w.create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	for _, state := range []string{"running", "paused", "stopped"} {
		w.ok(t, "exec", "box", "--", "sh", "-c", "echo "+state+" >a; echo x >"+state)
		switch state {
		case "paused":
			w.ok(t, "pause", "box")
		case "stopped":
			w.ok(t, "kill", "box")
		}
		if got := w.ok(t, "workspace", "diff", "--names", "box"); !strings.Contains(got, state) || strings.Contains(got, "changed meanwhile") {
			t.Errorf("%s: %q", state, got)
		}
		apply(t, w, dir, 0, "box")
		if got := read(t, filepath.Join(dir, "a")); got != state+"\n" {
			t.Errorf("%s: %q", state, got)
		}
		if got := w.ok(t, "workspace", "diff", "box"); got != "" {
			t.Errorf("%s: left %q", state, got)
		}
	}
	w.ok(t, "rm", "-f", "box")
}

// TestWorkspaceHostile: what root inside prepares stays inside, or comes out as what it is and with no rights.
func TestWorkspaceHostile(t *testing.T) {
	t.Parallel()
	needs(t)
	w := newWorld(t)
	outside := w.sub(t, "outside")
	write(t, filepath.Join(outside, "secret"), "secret\n")
	dir := w.sub(t, "project")
	w.sub(t, "project/d")
	write(t, filepath.Join(dir, "d/secret"), "mine\n")
	write(t, filepath.Join(dir, "f"), "f\n")
	w.create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.ok(t, "exec", "box", "--", "sh", "-euc", `rm -r d; ln -s `+outside+` d; rm f; ln -s ../outside/secret f
mkfifo pipe; printf x >'new
line'; printf x >"$(printf 'esc\033[31m')"; printf x >'..x'; printf x >setuid; chmod 6755 setuid; mknod dev c 1 3 2>/dev/null || true; mkdir -p sub/.git; echo x >sub/.git/config`)
	out := apply(t, w, dir, 1, "box")
	out.says(t, "pipe", "stay in the sandbox", "sub/.git/config", "name it")
	if strings.ContainsRune(out.stdout+out.stderr, 0x1b) {
		t.Errorf("an escape sequence came through: %q", out.stdout)
	}
	if got := read(t, filepath.Join(outside, "secret")); got != "secret\n" {
		t.Errorf("outside: %q", got)
	}
	if target, err := os.Readlink(filepath.Join(dir, "d")); err != nil || target != outside {
		t.Errorf("d: %q, %v", target, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "setuid")); err != nil || st.Mode() != 0o755 {
		t.Errorf("setuid: %v, %v", st, err)
	}
	for _, name := range []string{"new\nline", "esc\x1b[31m", "..x"} {
		if got := read(t, filepath.Join(dir, name)); got != "x" {
			t.Errorf("%q: %q", name, got)
		}
	}
	for _, name := range []string{"pipe", "dev", "sub/.git/config"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
	apply(t, w, dir, 0, "box", "sub/.git/config")
	w.ok(t, "workspace", "discard", "box")
	if got := w.ok(t, "exec", "box", "ls", "-A"); strings.Contains(got, "pipe") {
		t.Errorf("discarded: %q", got)
	}
	w.ok(t, "rm", "-f", "box")
}

// TestWorkspaceSummary: hutch run says what would be lost, or where it is.
func TestWorkspaceSummary(t *testing.T) {
	t.Parallel()
	needs(t)
	w := newWorld(t)
	dir := w.sub(t, "project")
	run := func(args ...string) result {
		return w.run(t, append([]string{"run", "--workspace", dir + ":overlay"}, args...)...)
	}
	run("--", "sh", "-c", "echo x >a; mkdir b").want(t, 0).says(t, "2 added", "went with the sandbox", "--keep keeps them")
	if out := run("--", "true").want(t, 0); out.stderr != "" {
		t.Errorf("of nothing: %q", out.stderr)
	}
	if out := run("--json", "--", "touch", "a").want(t, 0); out.stderr != "" {
		t.Errorf("with --json: %q", out.stderr)
	}
	run("--keep", "--name", "box", "--", "touch", "a").want(t, 0).says(t, "1 added", "hutch workspace apply")
	apply(t, w, dir, 0, "box")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	w.ok(t, "rm", "-f", "box")
}

// apply applies; root names the folder.
func apply(t *testing.T, w *world, dir string, code int, args ...string) result {
	t.Helper()
	if os.Getuid() == 0 {
		args = append([]string{"--folder", dir}, args...)
	}
	return w.run(t, append([]string{"workspace", "apply"}, args...)...).want(t, code)
}

// TestWorkspaceFolder: what is handed over must be the workspace's folder; root's is written to by no other way.
func TestWorkspaceFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir, other := w.sub(t, "project"), w.sub(t, "other")
	w.create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.ok(t, "exec", "box", "touch", "a")
	w.run(t, "workspace", "apply", "--folder", other, "box").want(t, 125).says(t, "not the folder")
	if os.Getuid() == 0 {
		w.run(t, "workspace", "apply", "box").want(t, 125).says(t, "read-only for the daemon", "--folder")
	}
	for _, d := range []string{dir, other} {
		if got := list(t, d); got != d+"\n" {
			t.Errorf("touched: %q", got)
		}
	}
	w.ok(t, "workspace", "apply", "--folder", dir, "box")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	w.ok(t, "rm", "-f", "box")
}

func list(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		b.WriteString(p + "\n")
		if e.Type().IsRegular() {
			b.WriteString(read(t, p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
