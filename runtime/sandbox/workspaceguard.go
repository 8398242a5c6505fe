package sandbox

import (
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/runtime/api"
)

// gitHistory is what of a .git folder git only reads and writes. All else there may choose programs that git runs, or
// where it looks for what does (commondir, worktrees, rebase-merge): it is guarded, known or not.
var gitHistory = []string{
	"HEAD", "index", "objects", "refs", "logs", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "COMMIT_EDITMSG", "shallow",
}

// guardedBy is the name that has to be given for a change to be applied; "" is none. What a rename takes away counts as well.
func guardedBy(c *changes.Change) string {
	if c.From != "" {
		if name := guardedAt(c.From, false); name != "" {
			return name
		}
	}
	return guardedAt(c.Path, c.Type == "d" && c.Kind != changes.Deleted)
}

// guardedAt looks for the names of the guard in any folder: git, editors and agents obey them below the workspace as well. A
// folder above such a name is harmless by itself; what replaces or removes it is not. Case does not count, as in some folders.
func guardedAt(p string, folder bool) string {
	for at := 0; at < len(p); {
		if p[at] == '.' {
			rest := lower(p[at:])
			if n := guardedLen(rest, p[at:], folder); n > 0 {
				return p[:at+n]
			}
		}
		i := strings.IndexByte(p[at:], '/')
		if i < 0 {
			break
		}
		at += i + 1
	}
	return ""
}

// guardedLen is how much of rest is guarded; asIs is rest as it is written.
func guardedLen(rest, asIs string, folder bool) int {
	if below, ok := strings.CutPrefix(rest, ".git/"); ok {
		first, _, _ := strings.Cut(below, "/")
		if !slices.Contains(gitHistory, asIs[len(".git/"):][:len(first)]) {
			return len(".git/") + len(first)
		}
	}
	for _, name := range api.GuardedNames {
		switch {
		case belongs(rest, name):
			return len(name)
		case !folder && belongs(name, rest):
			return len(rest)
		}
	}
	return 0
}

// lower is p with the letters A to Z in lower case, as long as p.
func lower(p string) string {
	b := []byte(p)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
