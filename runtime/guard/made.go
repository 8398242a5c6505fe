package guard

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// madePatience bounds how long PID 1 may take to say which repositories were made.
const madePatience = 5 * time.Second

// madeRepositories are new ones in a folder where they may be made, until the next look.
type madeRepositories struct {
	names []string // relative to the folder
	more  bool     // there are others
	err   error    // why PID 1 did not say which there are
}

// askMade asks PID 1 which repositories were made. It has a list of its own for them, which nothing else can fill; what
// does not fit there, or is not said, the result says in words.
func (l Folders) askMade(pid1 Guest) {
	guards := slices.DeleteFunc(slices.Clone(l),
		func(g *folder) bool { return !g.refuses || !g.set.NewRepositories() })
	if len(guards) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), madePatience)
	defer cancel()
	paths, more, err := pid1.Made(ctx)
	for _, p := range paths {
		l.MadeRepository(p)
	}
	for _, g := range guards {
		g.mu.Lock()
		g.made.more, g.made.err = g.made.more || more, err
		g.mu.Unlock()
	}
}

// MadeRepository notes that a repository has been made at a path of the sandbox's. It is reported by the next Look.
func (l Folders) MadeRepository(name string) {
	if g, rel := l.over(name); g != nil {
		g.repository(rel)
	}
}

// repository notes that a repository has been made at rel. PID 1 may lie: there is a bound.
func (g *folder) repository(rel string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case slices.Contains(g.made.names, rel):
	case len(g.made.names) >= guestapi.MaxMade:
		g.made.more = true
	default:
		g.made.names = append(g.made.names, rel)
	}
}

// takeMade is what there is to report about new repositories below root. The caller holds g.mu.
func (g *folder) takeMade(root int) (found []api.Unguarded) {
	made := g.made
	g.made = madeRepositories{}
	find := "find " + hostfs.Quote(g.mount.Source) + " -iname .git -o -iname HEAD"
	for _, rel := range made.names {
		u := api.Unguarded{
			Path: path.Join(g.target, rel),
			Why:  "it is a new repository: git takes instructions from its configuration and hooks",
			Hint: "look at both before you use git, or a prompt that asks git, in there",
		}
		// A name that is not text cannot be looked for: it is not what it is called here.
		if !strings.ContainsRune(rel, utf8.RuneError) && isMissing(root, rel) {
			u.Why = "a repository was made there, and has been moved or removed since"
			u.Hint = "look for it before you use git, or a prompt that asks git, in the folder: " + find
		}
		found = append(found, u)
	}
	rest := ""
	switch {
	case made.err != nil:
		rest = fmt.Sprintf("which repositories were made in it is not known: %v", made.err)
	case made.more:
		rest = fmt.Sprintf("more repositories were made in it than can be listed: %d are", len(made.names))
	default:
		return found
	}
	return append(found, api.Unguarded{
		Path: g.target, Why: rest,
		Hint: "look for all of them before you use git, or a prompt that asks git, in there: " + find,
	})
}

// isMissing reports whether there is nothing at rel.
func isMissing(root int, rel string) bool {
	fd, _, err := openBelow(root, rel)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.ENOENT)
}
