package guard

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

	table "github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Look returns what of the guards has turned up behind a command, each name once. It asks PID 1, for at most
// madePatience, and reads the folders.
func (l Folders) Look(pid1 Guest) (found []api.Unguarded) {
	l.askMade(pid1)
	for _, g := range l {
		found = append(found, g.look()...)
	}
	return found
}

// look returns the names at the top of the folder that are there and not guarded, each once.
func (g *folder) look() []api.Unguarded {
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
func (g *folder) reports(root int) (found []api.Unguarded) {
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
func (g *folder) list(root *os.File) bool {
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
	for i := range table.Rows {
		if first, _, _ := strings.Cut(table.Rows[i].Name, "/"); table.Rows[i].Report {
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
	for i := range table.Rows {
		if first, _, _ := strings.Cut(table.Rows[i].Name, "/"); table.Rows[i].Report && there[first] {
			g.reported = append(g.reported, &table.Rows[i])
		}
	}
	return true
}

// called is how a guarded path is unguarded.
func (g *folder) called(name string) string {
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
