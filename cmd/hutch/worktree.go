package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// addRepository mounts the repository of a workspace that is one of git's worktrees, in the workspace's mode: it lies
// elsewhere (gitrepository-layout(5)), and without it git finds no repository inside. Of a submodule it tells what to
// do instead.
func addRepository(w io.Writer, s *api.Spec) {
	ws := s.Workspace
	if ws == nil || ws.Mode == api.ModeNone {
		return
	}
	top, err := filepath.EvalSymlinks(ws.Path)
	if err == nil {
		top, err = filepath.Abs(top)
	}
	if err != nil {
		return // opening it says why
	}
	pointer, _ := firstLine(filepath.Join(top, ".git"))
	named, ok := strings.CutPrefix(pointer, "gitdir: ")
	if !ok {
		return
	}
	gitDir, relative := named, !filepath.IsAbs(named)
	if relative {
		gitDir = filepath.Join(top, named)
	}
	real, err := filepath.EvalSymlinks(gitDir)
	if err != nil || real == top || strings.HasPrefix(real, top+"/") {
		return // there is none, or it is inside
	}
	if super, _, ok := strings.Cut(real, "/.git/modules/"); ok && strings.HasPrefix(top, super+"/") {
		fmt.Fprintf(w, "hutch: %s is a submodule, whose repository is in %s: for git, --workspace %s -w /workspace/%s\n", cli.Line(top), cli.Line(super), cli.Line(super), cli.Line(top[len(super)+1:]))
		return
	}
	common, ok := repositoryOf(real, top)
	if !ok {
		fmt.Fprintf(w, "hutch: %s says that it is a worktree of %s, which does not say so: git finds no repository inside\n", cli.Line(top), cli.Line(gitDir))
		return
	}
	// Inside git takes the same way from the workspace, which is at another place where that is relative.
	inside := common
	if relative {
		inside = filepath.Join("/workspace", named, "../..")
	}
	if real != filepath.Clean(gitDir) || inside == "/" {
		fmt.Fprintf(w, "hutch: %s is a worktree of %s by way of a link: mount that where git looks for it, -v %s:PATH\n", cli.Line(top), cli.Line(common), cli.Line(common))
		return
	}
	for _, m := range s.Mounts {
		if filepath.Clean(m.Target) == inside {
			return // the user's word
		}
	}
	fmt.Fprintf(w, "hutch: %s is a worktree: its repository %s is mounted as well, %s\n", cli.Line(top),
		cli.Line(common), ws.Mode)
	s.Mounts = append(s.Mounts, api.Mount{Source: common, Target: inside, Mode: ws.Mode, Guard: ws.Guard,
		Unguarded: ws.Unguarded, GuardNew: ws.GuardNew})
}

// repositoryOf is the folder of the repository that has gitDir, where no link leads through, for the worktree at top.
// What top says of itself is not enough, since whoever has filled it may have named anything of the user's, and neither
// is what gitDir says of others: it is where git puts those of worktrees, in a repository, it names top, and as its
// repository that one.
func repositoryOf(gitDir, top string) (common string, ok bool) {
	if common = filepath.Dir(filepath.Dir(gitDir)); filepath.Base(filepath.Dir(gitDir)) != "worktrees" ||
		strings.HasPrefix(top+"/", common+"/") {
		return "", false
	}
	back, ok := firstLine(filepath.Join(gitDir, "gitdir"))
	if !ok || !sameFile(back, gitDir, filepath.Join(top, ".git")) {
		return "", false
	}
	named, ok := firstLine(filepath.Join(gitDir, "commondir"))
	if !filepath.IsAbs(named) {
		named = filepath.Join(gitDir, named)
	}
	if real, err := filepath.EvalSymlinks(named); !ok || err != nil || real != common {
		return "", false
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		st, err := os.Lstat(filepath.Join(common, name))
		if err != nil || st.IsDir() == (name == "HEAD") {
			return "", false
		}
	}
	return common, true
}

// firstLine reads what git writes into such files: one path. Links, and anything but short regular files, are none.
func firstLine(name string) (string, bool) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return "", false
	}
	text, err := io.ReadAll(io.LimitReader(f, unix.PathMax+16))
	line := strings.TrimRight(string(text), "\r\n")
	return line, err == nil && line != "" && !strings.ContainsAny(line, "\n\x00")
}

// sameFile reports whether name, relative to dir, is that file.
func sameFile(name, dir, file string) bool {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	a, err := os.Lstat(name)
	if err != nil {
		return false
	}
	b, err := os.Lstat(file)
	return err == nil && os.SameFile(a, b)
}
