package guard

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	table "github.com/hutch-sh/hutch/internal/guard"
)

// Reason says why a program was refused a file.
type Reason struct {
	By   string // "guard" or "mount", as api.Refusal has it
	Why  string
	Rule string
	How  string // to allow it
}

// rule is by what guarded names are refused.
const rule = "guard of the folder"

// Explain says why a name cannot be made or written to, which has failed with errno; false where no guard is why.
func (l Folders) Explain(name string, errno unix.Errno) (Reason, bool) {
	g, rel := l.over(name)
	if g == nil {
		return Reason{}, false
	}
	why, how, ok := g.explain(rel)
	if !ok {
		return Reason{}, false
	}
	by := "mount"
	if errno == unix.EROFS && g.refuses {
		by = "guard"
	}
	return Reason{By: by, Rule: rule, Why: why, How: how}, true
}

// explain is Explain for a name in the folder.
func (g *folder) explain(rel string) (why, how string, ok bool) {
	for _, name := range g.named {
		if _, ok := below(rel, name); ok {
			return name + " is guarded: the configuration of a repository names it", "--unguard all", true
		}
	}
	m, ok := g.set.Path(rel, false)
	if !ok {
		if m, ok = g.inRepository(rel); ok && m.Name != table.NewRepository {
			m.Name = ".git"
		}
	}
	if slices.Contains(g.mount.Guard, m.Name) {
		return m.Path + " is guarded, as was asked for", "leave out --guard " + m.Name, ok
	}
	switch {
	case !ok:
		return "", "", false
	case m.Name == table.NewRepository:
		return "it would make a repository, in which git takes instructions from its configuration",
			"--unguard " + m.Name + ", or :overlay", true
	case m.Above:
		var held []string
		for _, name := range g.set.Names() {
			if strings.HasPrefix(name, path.Base(m.Path)+"/") {
				held = append(held, name)
			}
		}
		return "it holds what is guarded: " + strings.Join(held, ", "), "--unguard " +
			cmp.Or(strings.Join(held, " --unguard "), m.Name), true
	}
	return m.Path + " is guarded: programs of yours take instructions from it", "--unguard " + m.Name, true
}

// inRepository looks for a folder of a repository above rel that has no name of its own, such as a bare one.
func (g *folder) inRepository(rel string) (table.Match, bool) {
	root, err := os.OpenFile(g.at, unix.O_PATH, 0)
	if err != nil {
		return table.Match{}, false
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
			return table.Match{Name: table.NewRepository, Path: rel}, true
		}
		if dir == "." {
			return table.Match{}, false
		}
	}
}
