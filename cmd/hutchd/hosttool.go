package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/spec"
)

// hostTools say how to ask the programs that names of images stand for for their version.
// Each answer is of the form that versionOf knows.
var hostTools = map[string][]string{
	"python": {"python3", "--version"},
	"node":   {"node", "--version"},
	"bash":   {"bash", "--version"},
	"go":     {"go", "version"},
	"rust":   {"rustc", "--version"},
	"ruby":   {"ruby", "--version"},
}

// versionLimit is how long a program may take to tell its version.
const versionLimit = 5 * time.Second

// hostHas is the host image in the place of one that no registry can be asked for, when
// name asks for nothing but a program and the host has exactly that version; else nil.
func (s *imageSource) hostHas(ctx context.Context, name, platform string) *spec.Root {
	tool, want, ok := s.d.runtimes.Load().Tool(name)
	ask := hostTools[tool]
	if !ok || ask == nil {
		return nil
	}
	root, err := s.host(platform)
	if err != nil {
		return nil
	}
	have, err := askVersion(ctx, root.Config.Env, ask)
	if err != nil || !isVersionOf(want, have) {
		s.d.log.Debug("the host has not what an image stands for", "name", name, "have", have, "err", err)
		root.Release()
		return nil
	}
	root.Note = fmt.Sprintf("no registry can be reached for %s; the host image has %s %s (as %s) and is used in its place", name, tool, have, ask[0])
	return root
}

// askVersion runs a program of the host that the host image shows at the same place, with
// nothing of this process's environment.
func askVersion(ctx context.Context, env, argv []string) (string, error) {
	path, err := findProgram(env, argv[0])
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Dir, cmd.Env = "/", append([]string{"GOTOOLCHAIN=local"}, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(out, 4096))
	if end := cmd.Wait(); err == nil {
		err = end
	}
	return versionOf(text), err
}

// findProgram looks for a program in the PATH of env.
func findProgram(env []string, name string) (string, error) {
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			at := filepath.Join(dir, name)
			if st, err := os.Stat(at); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return at, nil
			}
		}
	}
	return "", exec.ErrNotFound
}

var versionRE = regexp.MustCompile(`\d+(\.\d+)+`)

// versionOf is the version in the first line of what a program says about itself.
func versionOf(text []byte) string {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(versionRE.Find(line))
}

// isVersionOf says that have is want as far as want goes: 3.12 is any 3.12.x, and no 3.1.
func isVersionOf(want, have string) bool {
	return want != "" && (have == want || strings.HasPrefix(have, want+"."))
}
