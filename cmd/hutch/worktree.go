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

// addRepository mounts the repository of a workspace that is one of git's worktrees, in the workspace's mode: it lies elsewhere
// (gitrepository-layout(5)), and without it git finds no repository inside. What a folder says of itself is not enough, since whoever has
// filled it may have named a repository of yours: that one has to know the worktree, too. Of a submodule it tells what to do instead.
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
	// What is in the workspace is found from there, at another place than the host's where it is a relative path.
	gitDir, inside := named, named
	if !filepath.IsAbs(named) {
		gitDir, inside = filepath.Join(top, named), filepath.Join("/workspace", named)
	}
	if strings.HasPrefix(gitDir, top+"/") {
		return
	}
	common, ok := firstLine(filepath.Join(gitDir, "commondir"))
	if !ok {
		if super, _, ok := strings.Cut(gitDir, "/.git/modules/"); ok && strings.HasPrefix(top, super+"/") {
			fmt.Fprintf(w, "hutch: %s is a submodule, whose repository is in %s: for git, --workspace %s -w /workspace/%s\n", cli.Line(top), cli.Line(super), cli.Line(super), cli.Line(top[len(super)+1:]))
		}
		return
	}
	back, ok := firstLine(filepath.Join(gitDir, "gitdir"))
	if !ok || !sameFile(back, gitDir, filepath.Join(top, ".git")) {
		fmt.Fprintf(w, "hutch: %s says that it is a worktree of %s, which does not know it: git finds no repository inside\n", cli.Line(top), cli.Line(gitDir))
		return
	}
	if filepath.IsAbs(common) {
		gitDir, inside = common, common
	} else {
		gitDir, inside = filepath.Join(gitDir, common), filepath.Join(inside, common)
	}
	for _, m := range s.Mounts {
		if filepath.Clean(m.Target) == inside {
			return // the user's word
		}
	}
	fmt.Fprintf(w, "hutch: %s is a worktree: its repository %s is mounted as well, %s\n", cli.Line(top), cli.Line(gitDir), ws.Mode)
	s.Mounts = append(s.Mounts, api.Mount{Source: gitDir, Target: inside, Mode: ws.Mode, Guard: ws.Guard, Unguarded: ws.Unguarded, GuardNew: ws.GuardNew})
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
