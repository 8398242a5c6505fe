package sandbox

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/internal/guard"
)

// guardedDeep is what of changes is guarded, in any folder: what is applied is looked at as a whole.
var guardedDeep = guard.New(nil, nil).Deep()

// guardedChange is the name that has to be given for a change to be applied; "" is none. What a rename takes away counts as well.
func (t *transaction) guardedChange(c *changes.Change) string {
	folder := c.Type == "d" && c.Kind != changes.Deleted
	if c.From != "" {
		if name := guardedAt(c.From, false); name != "" {
			return name
		}
	}
	if name := guardedAt(c.Path, folder); name != "" {
		return name
	}
	is := func(view int, dir string) bool {
		return guard.IsRepository(func(name string) bool { return there(view, path.Join(dir, name)) })
	}
	return guardedRepository(c.Path, c.Kind != changes.Deleted,
		func(dir string) bool { return is(int(t.merged.Fd()), dir) }, func(dir string) bool { return is(int(t.lower.Fd()), dir) })
}

// there reports whether there is something at a path below a folder.
func there(dir int, p string) bool {
	fd, _, err := openBelow(dir, p)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// guardedAt looks for guarded names in any folder. A folder above such a name is harmless by itself; what replaces or removes it is not.
// Case does not count, as in some folders.
func guardedAt(p string, folder bool) string {
	if m, ok := guardedDeep.Arrives(p, folder); ok {
		return m.Path
	}
	return ""
}

// guardedRepository looks for folders that git takes for a repository although they have no name that says so, such as bare ones: their
// configuration and hooks, and what makes a folder one that was none. now and before tell which folders are one.
func guardedRepository(p string, made bool, now, before func(dir string) bool) string {
	for dir, in := path.Dir(p), path.Base(p); ; dir, in = path.Dir(dir), path.Join(path.Base(dir), in) {
		first, _, _ := strings.Cut(in, "/")
		switch {
		case slices.Contains([]string{"HEAD", "commondir", "objects", "refs"}, first):
			if made && first == in && now(dir) && !before(dir) {
				return p
			}
		default:
			if m, ok := guardedDeep.Repository(in, false); ok && !m.Above && now(dir) {
				return path.Join(dir, m.Path)
			}
		}
		if dir == "." || dir == "/" {
			return ""
		}
	}
}
