package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestWorktree: git works in a workspace that is a worktree, whose repository is elsewhere, if that one knows it.
func TestWorktree(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	git := newHostGit(t)
	main, tree := w.Sub(t, "main"), w.Path("tree")
	git.run(t, main, "init", "-q")
	world.Write(t, filepath.Join(main, "file"), "one\n")
	git.run(t, main, "add", "file")
	git.run(t, main, "commit", "-qm", "one")
	git.run(t, main, "worktree", "add", "-q", tree)
	const commit = `git config -l >/dev/null && echo two >>file && git -c user.name=n -c user.email=n@localhost commit -qam two && git log --format=%s`
	for _, mode := range []string{"overlay", "rw"} {
		r := w.Run(t, "run", "--workspace", tree+":"+mode, "host", "sh", "-c", commit).Want(t, 0)
		if r.Stdout != "two\none\n" {
			t.Errorf("%s: %q", mode, r.Stdout)
		}
		r.Says(t, "is a worktree: its repository "+filepath.Join(main, ".git")+" is mounted as well, "+mode)
	}
	w.Run(t, "run", "--workspace", tree+":ro", "host", "sh", "-c", "git log --format=%s && ! touch .git 2>/dev/null").
		Want(t, 0)
	// What was committed in mode rw is there, and the guard holds for the repository as for a workspace's.
	if got, err := git.command(tree, "log", "--format=%s").Output(); string(got) != "two\none\n" {
		t.Errorf("log: %q, %v", got, err)
	}
	w.Run(t, "run", "--workspace", tree+":rw", "host", "sh", "-c",
		`cd "$(git rev-parse --git-common-dir)" && echo x >>config`).Want(t, 2).Says(t, "Read-only file system")

	t.Run("of a repository that does not know it", func(t *testing.T) {
		fake := w.Sub(t, "fake")
		world.Write(t, filepath.Join(fake, ".git"), "gitdir: "+filepath.Join(main, ".git/worktrees/tree")+"\n")
		w.Run(t, "run", "--workspace", fake+":ro", "host", "ls", main).Want(t, 2).
			Says(t, "which does not say so", "No such file")
	})
	t.Run("of anything else", func(t *testing.T) {
		// What is in the folder names a folder of the user's by ways that a comparison of texts does not find.
		fake, secret := w.Sub(t, "odd"), w.Sub(t, "secret")
		world.Write(t, filepath.Join(secret, "key"), "key\n")
		if err := os.MkdirAll(filepath.Join(fake, "repo/worktrees/x"), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(fake, "repo/worktrees/x/gitdir"), filepath.Join(fake, ".git")+"\n")
		world.Write(t, filepath.Join(fake, "repo/worktrees/x/commondir"), secret+"\n")
		outside := w.Sub(t, "outside/worktrees/x") // no repository, but for that
		world.Write(t, filepath.Join(outside, "gitdir"), filepath.Join(fake, ".git")+"\n")
		world.Write(t, filepath.Join(outside, "commondir"), secret+"\n")
		for _, pointer := range []string{"/proc/self/cwd/repo/worktrees/x", "/" + fake + "/repo/worktrees/x",
			filepath.Dir(fake) + "/./odd/repo/worktrees/x", "repo/worktrees/x", outside} {
			world.Write(t, filepath.Join(fake, ".git"), "gitdir: "+pointer+"\n")
			cmd := w.Command("run", "--workspace", fake+":ro", "host", "cat", filepath.Join(secret, "key"))
			cmd.Dir = fake
			w.Finish(t, cmd).Want(t, 1).Says(t, "No such file")
		}
	})
	t.Run("a submodule", func(t *testing.T) {
		super := w.Sub(t, "super")
		git.run(t, super, "init", "-q")
		git.run(t, super, "submodule", "--quiet", "add", main, "lib")
		git.run(t, super, "commit", "-qm", "lib")
		lib := filepath.Join(super, "lib")
		w.Run(t, "run", "--workspace", lib+":ro", "host", "true").Want(t, 0).
			Says(t, "is a submodule", "--workspace "+super+" -w /workspace/lib")
		if got := w.OK(t, "run", "--workspace", super+":ro", "-w", "/workspace/lib", "host", "git", "log",
			"--format=%s"); got != "one\n" {
			t.Errorf("log: %q", got)
		}
	})
}
