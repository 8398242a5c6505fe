package obeyed_test

import (
	"os"
	"path/filepath"
)

// repository makes one with a commit.
func repository(u *user) {
	u.t.Helper()
	u.must("git", "init", "-q", "-b", "main")
	u.must("git", "add", "file")
	u.must("git", "commit", "-q", "-m", "x")
}

// commit is git commit of a change.
func commit(u *user) {
	u.write(u.dir, map[string]string{"file": "words\nmore\n"})
	u.do("git", "commit", "-q", "-a", "-m", "more")
}

// versions are programs that keep versions, and obey what is in their folders.
func versions() []program {
	git := func(name string, rows []string, made map[string]string, setup, run func(*user)) program {
		return program{name: name, seen: "git 2.39.5", rows: rows, needs: []string{"git"}, made: made,
			version: []string{"git", "--version"}, setup: setup, run: run}
	}
	const monitor = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = \"touch MARK; false\"\n"
	status := runs("git", "status")
	home := func(name, row, file string) program {
		p := git(name, []string{row}, map[string]string{file: monitor}, repository, status)
		p.home = true
		return p
	}
	commondir := git("git-commondir", []string{".git/commondir"}, map[string]string{".git/commondir": "../elsewhere\n"},
		repository, status)
	commondir.beside = map[string]string{"elsewhere/config": monitor, "elsewhere/objects/none": "",
		"elsewhere/refs/none": ""}
	modules := git("git-modules", []string{".git/modules"}, map[string]string{
		".git/modules/mod/config": monitor + "\tworktree = ../../../mod\n"},
		all(repository, did("git", "init", "-q", "HERE.from"),
			did("git", "-C", "HERE.from", "commit", "-q", "--allow-empty", "-m", "x"),
			did("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "HERE.from", "mod")),
		runs("git", "-C", "mod", "status"))
	worktrees := git("git-worktrees", []string{".git/worktrees"}, map[string]string{
		".git/worktrees/work.tree/commondir": "../../../elsewhere\n"},
		all(repository, did("git", "worktree", "add", "-q", "HERE.tree")), runs("git", "-C", "HERE.tree", "status"))
	worktrees.beside = commondir.beside
	// What these have is a repository's, by its shape.
	modules.also, worktrees.also = ".git/config", ".git/commondir"
	hg := func(name, row, text string, setup func(*user)) program {
		return program{name: name, seen: "Mercurial 6.3.2", rows: []string{row}, needs: []string{"hg"},
			version: []string{"hg", "--version", "-q"}, made: map[string]string{row: text}, setup: setup,
			run: runs("hg", "status")}
	}
	const hook = "[hooks]\npre-status = touch MARK\n"
	shared := func(u *user) {
		from := filepath.Join(filepath.Dir(u.dir), "source")
		u.must("hg", "--config", "format.use-share-safe=yes", "init", from)
		u.must("hg", "--config", "extensions.share=", "share", "-q", from, "HERE/shared")
		// It wants to make the folder itself.
		if err := os.Rename(filepath.Join(u.dir, "shared/.hg"), filepath.Join(u.dir, ".hg")); err != nil {
			u.t.Fatal(err)
		}
	}
	hgrc := hg("hgrc", ".hgrc", hook, did("hg", "init"))
	hgrc.home = true
	hgConfig := hg("hg-config", ".config/hg", "", did("hg", "init"))
	hgConfig.home, hgConfig.made = true, map[string]string{".config/hg/hgrc": hook}
	sharedpath := hg("hg-sharedpath", ".hg/sharedpath", "HERE/elsewhere\n", shared)
	sharedpath.beside = map[string]string{"elsewhere/hgrc": hook, "elsewhere/requires": "share-safe\n",
		"elsewhere/store/requires": "dotencode\nfncache\ngeneraldelta\nrevlogv1\nsparserevlog\nstore\n"}
	return []program{
		git("git-hooks", []string{".git/hooks"}, map[string]string{".git/hooks/pre-commit": shell}, repository, commit),
		git("git-config", []string{".git/config"}, map[string]string{".git/config": monitor}, repository, status),
		git("git-config-worktree", []string{".git/config.worktree"}, map[string]string{".git/config.worktree": monitor},
			all(repository, did("git", "config", "extensions.worktreeConfig", "true")), status),
		git("git-attributes", []string{".git/info/attributes"}, map[string]string{
			".git/info/attributes": "* filter=user\n"},
			all(repository, has(".gitconfig", "[filter \"user\"]\n\tclean = touch MARK; cat\n")), commit),
		commondir, modules, worktrees,
		home("gitconfig", ".gitconfig", ".gitconfig"),
		home("git-home", ".config/git", ".config/git/config"),
		hg("hg", ".hg/hgrc", hook, did("hg", "init")),
		hg("hg-not-shared", ".hg/hgrc-not-shared", hook, shared),
		sharedpath, hgrc, hgConfig,
	}
}
