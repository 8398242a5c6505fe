package workspace

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/changes"
	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/internal/sys"
)

// guardedDeep is what of changes is guarded, in any folder: what is applied is looked at as a whole.
var guardedDeep = guard.Changes()

// guardedChange is the name that has to be given for a change to be applied; "" is none. What a rename takes away
// counts as well.
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
	return guardedRepository(c.Path, c.Kind != changes.Deleted,
		func(p string) bool { return there(int(t.merged.Fd()), p) || there(int(t.lower.Fd()), p) },
		func(p string) bool { return there(int(t.lower.Fd()), p) })
}

// there reports whether there is something at a path below a folder.
func there(dir int, p string) bool {
	fd, err := sys.OpenAcross(dir, p, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// guardedAt looks for guarded names in any folder. A folder above such a name is harmless by itself; what replaces or
// removes it is not. Case does not count, as in some folders.
func guardedAt(p string, folder bool) string {
	if m, ok := guardedDeep.Arrives(p, folder); ok {
		return m.Path
	}
	return ""
}

// guardedRepository looks for folders that git takes for a repository although they have no name that says so, such as
// bare ones: what git obeys in them, and the HEAD that makes a folder one. has and had tell what there is now, and was
// in the user's folder.
func guardedRepository(p string, made bool, has, had func(p string) bool) string {
	for at := 0; ; {
		end := strings.IndexByte(p[at:], '/')
		if end < 0 {
			end = len(p) - at
		}
		name, whole := p[at:at+end], p[:at+end]
		dir := path.Dir(whole)
		counts := name != "HEAD" || made && !had(whole)
		if counts && guardedDeep.Completes(name, func(n string) bool { return has(path.Join(dir, n)) }) {
			return whole
		}
		if at += end + 1; at >= len(p) {
			return ""
		}
	}
}
