package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
)

// lookUnguarded tells what of the guards has turned up, behind a command.
func (m *Manager) lookUnguarded(s *Sandbox, exec string) []api.Unguarded {
	m.askMade(s)
	var found []api.Unguarded
	for _, g := range s.guards {
		found = append(found, g.look()...)
	}
	for _, u := range found {
		m.emit(api.EventUnguarded, s, exec, u)
	}
	return found
}

// look returns the names at the top of the folder that are there and not guarded, each once.
func (g *folderGuard) look() []api.Unguarded {
	root, err := os.Open(g.at)
	if err != nil {
		return nil // it is being removed
	}
	defer root.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.takeMade(int(root.Fd()))
	if !g.list(root) {
		return found
	}
	for _, name := range g.top {
		// The folder above, where that is no folder: it says where the real one is.
		name = cmp.Or(fileAbove(int(root.Fd()), name), name)
		if g.told[name] || g.holdsRepositories(name) {
			continue
		}
		fd, st, err := openBelow(int(root.Fd()), name)
		why := "it is new, or the host has replaced it"
		if g.refuses {
			why = "the host has made or replaced it"
		}
		switch {
		case errors.Is(err, unix.ELOOP):
			why = "it is, or lies behind, a symlink"
		case err != nil:
			continue
		default:
			_ = unix.Close(fd)
			switch {
			case st.Mode&unix.S_IFMT == unix.S_IFLNK:
				why = "it is, or lies behind, a symlink"
			case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
				continue
			}
		}
		if len(g.told) >= maxTold {
			break
		}
		g.told[name] = true
		found = append(found, api.Unguarded{
			Path: path.Join(g.target, name), Why: why + ", so the sandbox can write it",
			Hint: fmt.Sprintf("look at it before a program of yours does; --unguard %s, if it may", g.called(name)),
		})
	}
	return append(found, g.reports(int(root.Fd()))...)
}

// reports are names that may be made, and have been. The caller holds g.mu.
func (g *folderGuard) reports(root int) (found []api.Unguarded) {
	for _, r := range g.reported {
		if g.told[r.Name] {
			continue
		}
		fd, _, err := openBelow(root, r.Name)
		if err != nil {
			continue
		}
		_ = unix.Close(fd)
		g.told[r.Name] = true
		found = append(found, api.Unguarded{
			Path: path.Join(g.target, r.Name), Why: fmt.Sprintf("it is new, and %s takes instructions from it (%s)",
				r.Who, r.When),
			Hint: "look at it before a program of yours does",
		})
	}
	return found
}

// What a look at the top of a folder takes at most, behind each command: names, and of them those that are looked at
// and told about. It is for people who want to know; what must not be made is not made.
const (
	maxTopNames = 100_000
	maxTold     = 1000
)

// list finds what of the guard can be in the folder by the names that it has, which it reads again when they have
// changed. The caller holds g.mu. It is false where the folder cannot be read, or is none.
func (g *folderGuard) list(root *os.File) bool {
	var st unix.Statx_t
	err := unix.Statx(int(root.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_CTIME|unix.STATX_MTIME, &st)
	if err != nil {
		return false
	}
	// A clock of the kernel's goes in steps: what changed just now may change again within the same one.
	if now := time.Now().Unix(); st.Ctime == g.changed && st.Mtime.Sec < now-1 && st.Ctime.Sec < now-1 {
		return true
	}
	g.changed, g.top, g.reported = st.Ctime, append(g.set.Own(), g.named...), nil
	there := map[string]bool{} // of what is reported
	for i := range guard.Rows {
		if first, _, _ := strings.Cut(guard.Rows[i].Name, "/"); guard.Rows[i].Report {
			there[first] = false
		}
	}
	for seen := 0; seen < maxTopNames; {
		entries, err := root.Readdirnames(1024)
		seen += len(entries)
		for _, e := range entries {
			if len(g.top) < maxTold {
				g.top = append(g.top, g.set.Candidates("", e)...)
			}
			if _, ok := there[e]; ok {
				there[e] = true
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false
		}
	}
	slices.Sort(g.top)
	g.top = slices.Compact(g.top)
	for i := range guard.Rows {
		if first, _, _ := strings.Cut(guard.Rows[i].Name, "/"); guard.Rows[i].Report && there[first] {
			g.reported = append(g.reported, &guard.Rows[i])
		}
	}
	return true
}

// explain says why a name of the folder cannot be made or written; false where the guard is not why.
func (g *folderGuard) explain(rel string) (fileReason, bool) {
	for _, name := range g.named {
		if _, ok := below(rel, name); ok {
			return fileReason{"mount", guardRule, name + " is guarded: the configuration of a repository names it",
				"--unguard all"}, true
		}
	}
	m, ok := g.set.Path(rel, false)
	if !ok {
		if m, ok = g.inRepository(rel); ok && m.Name != guard.NewRepository {
			m.Name = ".git"
		}
	}
	if slices.Contains(g.mount.Guard, m.Name) {
		return fileReason{"mount", guardRule, m.Path + " is guarded, as was asked for", "leave out --guard " +
			m.Name}, ok
	}
	switch {
	case !ok:
		return fileReason{}, false
	case m.Name == guard.NewRepository:
		return fileReason{
			"mount", guardRule, "it would make a repository, in which git takes instructions from its configuration",
			"--unguard " + m.Name + ", or :overlay",
		}, true
	case m.Above:
		var held []string
		for _, name := range g.set.Names() {
			if strings.HasPrefix(name, path.Base(m.Path)+"/") {
				held = append(held, name)
			}
		}
		return fileReason{"mount", guardRule, "it holds what is guarded: " + strings.Join(held, ", "), "--unguard " +
			cmp.Or(strings.Join(held, " --unguard "), m.Name)}, true
	}
	return fileReason{"mount", guardRule, m.Path + " is guarded: programs of yours take instructions from it",
		"--unguard " + m.Name}, true
}

// inRepository looks for a folder of a repository above rel that has no name of its own, such as a bare one.
func (g *folderGuard) inRepository(rel string) (guard.Match, bool) {
	root, err := openPath(g.at)
	if err != nil {
		return guard.Match{}, false
	}
	defer root.Close()
	for dir, in := path.Dir(rel), path.Base(rel); ; dir, in = path.Dir(dir), path.Join(path.Base(dir), in) {
		has := func(name string) bool {
			fd, _, err := openBelow(int(root.Fd()), path.Join(dir, name))
			if err == nil {
				_ = unix.Close(fd)
			}
			return err == nil
		}
		if m, ok := g.set.Repository(in, false); ok && has("HEAD") {
			return m, true
		}
		if !strings.Contains(in, "/") && g.set.Completes(in, has) {
			return guard.Match{Name: guard.NewRepository, Path: rel}, true
		}
		if dir == "." {
			return guard.Match{}, false
		}
	}
}

// called is how a guarded path is unguarded.
func (g *folderGuard) called(name string) string {
	if m, ok := g.set.Path(name, false); ok {
		return m.Name
	}
	return name
}

// fileAbove is the first folder of name that is a file; "" when none is.
func fileAbove(root int, name string) string {
	for i, c := range name {
		if c != '/' {
			continue
		}
		fd, st, err := openBelow(root, name[:i])
		if err != nil {
			return ""
		}
		_ = unix.Close(fd)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return name[:i]
		}
	}
	return ""
}
