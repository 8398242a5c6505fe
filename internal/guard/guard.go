// Package guard knows what programs of the user's obey in a folder without being asked: names and shapes of files from
// which they take commands to run although the user ran a command that is not for running the folder's code (cd, ls,
// status, open, complete, install of something else). What a sandbox may write in a folder of the user's must not be
// any of these.
//
// The data is Rows. A Set is what is left of it for one sandbox. It looks at paths only, and opens nothing.
package guard

import (
	"slices"
	"strings"
)

// Depth says in which folders below a guarded one a row holds.
type Depth string

// The depths.
const (
	Top     Depth = "top"     // in the folder itself: it may be a home folder, or /
	Project Depth = "project" // in each folder that is not a dependency's (Dependencies): people open and enter those
	Any     Depth = "any"     // in each folder: programs come there by themselves
)

// Row is one name.
type Row struct {
	Name   string // relative to the folder that has it; a leading * stands for any beginning of the name
	Depth  Depth
	Report bool // it can be made, and is reported: people's own work makes it as well
	// Words are a text that agents take instructions from. They can be made, as people's own work does, and what a
	// sandbox has made of them is applied only by name: who works on the folder next obeys it with the user's rights.
	Words  bool
	Who    string // obeys it
	When   string // the user does what
	Source string // that says so
}

// Dependencies are folders with other people's packages, which nobody opens as a project.
var Dependencies = []string{"node_modules", "site-packages", "vendor"}

// InDependency reports whether a path is a folder of Dependencies, or lies in one.
func InDependency(p string) bool {
	for part := range strings.SplitSeq(lower(p), "/") {
		if slices.Contains(Dependencies, part) {
			return true
		}
	}
	return false
}

// NewRepository is what to unguard, and the rule's name, for repositories that a sandbox makes.
const NewRepository = "git-new"

// All in place of names to unguard is every name.
const All = "*"

// Match is why a path is guarded.
type Match struct {
	Name  string // to unguard: of a row, or of the caller's own, or NewRepository
	Path  string // the beginning of the path that is what the name says, as it was given
	Above bool   // the path does not have the name, but what replaces it would
}

// Set is what is guarded in one folder. The zero value guards nothing. It is not changed once it is made.
type Set struct {
	own  []name
	rows []name
	git  []name // names in the folder of a repository
	// first are the rows by the first part of their names, and globs those that have a star there.
	first  map[string][]int
	globs  []int
	gitNew bool // repositories may be made
	deps   bool // rows hold in dependencies, too
	deep   bool // those of the top in any folder
}

type name struct {
	text  string // in lower case
	as    string // as it is called
	depth Depth
}

// New makes the set of all rows but those that are unguarded, and of names of the caller's own, which are relative to
// the guarded folder. A name unguards what lies below it, too.
func New(own, unguarded []string) *Set { return newSet(own, unguarded, false) }

// Changes is the set of all rows, Words as well, in any folder: for changes that are looked at as a whole.
func Changes() *Set { return newSet(nil, nil, true).Deep() }

func newSet(own, unguarded []string, words bool) *Set {
	s := &Set{first: map[string][]int{}}
	free := func(n string) bool {
		return slices.ContainsFunc(unguarded, func(u string) bool {
			return u == All || u == n ||
				strings.HasPrefix(n, u+"/")
		})
	}
	for _, n := range own {
		if free(n) && !slices.Contains(unguarded, All) {
			continue
		}
		s.own = append(s.own, name{text: lower(n), as: n, depth: Top})
	}
	for i := range Rows {
		r := &Rows[i]
		if r.Report || r.Words && !words || free(r.Name) {
			continue
		}
		n := name{text: lower(r.Name), as: r.Name, depth: r.Depth}
		if inside, ok := strings.CutPrefix(r.Name, ".git/"); ok {
			s.git = append(s.git, name{text: inside, as: r.Name, depth: Top})
		}
		switch first, _, _ := strings.Cut(n.text, "/"); {
		case strings.HasPrefix(first, "*"):
			s.globs = append(s.globs, len(s.rows))
		default:
			s.first[first] = append(s.first[first], len(s.rows))
		}
		s.rows = append(s.rows, n)
	}
	s.gitNew = free(NewRepository) || len(s.git) == 0
	return s
}

// Known reports whether a name can be unguarded: it is a row's, a folder of some, NewRepository or All.
func Known(name string) bool {
	return name == All || name == NewRepository ||
		slices.ContainsFunc(Rows, func(r Row) bool { return r.Name == name || strings.HasPrefix(r.Name, name+"/") })
}

// InDependencies is the set in which dependencies count as other folders do: for what comes out of a sandbox, with
// links that lead there.
func (s *Set) InDependencies() *Set {
	all := *s
	all.deps = true
	return &all
}

// Deep is the set in which each row holds in any folder: for what is looked at before it comes.
func (s *Set) Deep() *Set {
	deep := *s
	deep.deps, deep.deep = true, true
	return &deep
}

// Empty reports whether nothing is guarded.
func (s *Set) Empty() bool { return s == nil || len(s.own)+len(s.rows) == 0 }

// NewRepositories reports whether repositories may be made.
func (s *Set) NewRepositories() bool { return s.Empty() || s.gitNew }

// Names are what is guarded, as it is called, sorted.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	var names []string
	for _, n := range append(slices.Clone(s.own), s.rows...) {
		names = append(names, n.as)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Path looks at a path relative to the guarded folder. It is guarded if it has a guarded name, or lies below one, or
// above one: but an empty folder above is harmless by itself, except for .git, which nobody wants without what is
// guarded in it.
func (s *Set) Path(p string, emptyFolder bool) (Match, bool) { return s.path(p, emptyFolder, s.gitNew) }

func (s *Set) path(p string, emptyFolder, gitNew bool) (Match, bool) {
	if m, ok := s.IsOwn(p, emptyFolder); ok {
		return m, true
	}
	low, dependency := lower(p), false
	for at := 0; at < len(low); {
		end := strings.IndexByte(low[at:], '/')
		if end < 0 {
			end = len(low) - at
		}
		first := low[at : at+end]
		if first == ".git" && !gitNew && at+end == len(low) {
			return Match{Name: NewRepository, Path: p}, true
		}
		for i := range s.rows {
			n := &s.rows[i]
			if n.depth == Top && at > 0 && !s.deep || n.depth == Project && dependency && !s.deps || gitNew &&
				strings.HasPrefix(n.text, ".git/") {
				continue
			}
			if m, ok := n.at(low, p, at, emptyFolder); ok {
				return m, true
			}
		}
		dependency = dependency || slices.Contains(Dependencies, first)
		at += end + 1
	}
	return Match{}, false
}

// history is what of a .git folder git only reads and writes. All else there may choose programs that git runs, or
// where it looks for what does (commondir, worktrees, rebase-merge): it is guarded, known or not.
var history = []string{
	"HEAD", "index", "objects", "refs", "logs", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD",
	"COMMIT_EDITMSG", "shallow",
}

// Arrives looks at a path that somebody brings into a folder as a part of a whole: of a repository its history may
// come, and nothing else.
func (s *Set) Arrives(p string, folder bool) (Match, bool) {
	for at := 0; len(s.git) > 0 && at < len(p); {
		first, below, deeper := strings.Cut(p[at:], "/")
		if lower(first) == ".git" {
			name, _, _ := strings.Cut(below, "/")
			switch {
			case !deeper && !folder:
				return Match{Name: ".git", Path: p}, true
			case deeper && !slices.Contains(history, name):
				return Match{Name: ".git", Path: p[:at+len(first)+1+len(name)]}, true
			case deeper && (name == "refs" || name == "logs") && !strings.Contains(lower(below)+"/", "/.git/"):
				return Match{}, false // names of branches
			}
		}
		at += len(first) + 1
	}
	return s.path(p, folder, true)
}

// Repository looks at a path relative to the folder of a repository: a .git, a bare one, or that of a worktree or
// submodule. Beside what git obeys there it may hold folders that people enter, by a link say.
func (s *Set) Repository(p string, emptyFolder bool) (Match, bool) {
	if m, ok := s.ofGit(p, emptyFolder); ok {
		return m, true
	}
	first, _, _ := strings.Cut(lower(p), "/")
	if first != "refs" && first != "logs" { // where names are those of branches
		return s.path(p, emptyFolder, s.gitNew)
	}
	for part := range strings.SplitSeq(lower(p), "/") {
		if part == ".git" && !s.gitNew {
			return Match{Name: NewRepository, Path: p}, true
		}
	}
	return Match{}, false
}

// ofGit looks for what git obeys in the folder of a repository.
func (s *Set) ofGit(p string, emptyFolder bool) (Match, bool) {
	low := lower(p)
	for i := range s.git {
		n := &s.git[i]
		if s.gitNew && (n.text == "modules" || n.text == "worktrees") {
			continue
		}
		if m, ok := n.at(low, p, 0, emptyFolder); ok {
			return m, true
		}
	}
	return Match{}, false
}

// IsOwn looks for names of the caller's own alone.
func (s *Set) IsOwn(p string, emptyFolder bool) (Match, bool) {
	low := lower(p)
	for i := range s.own {
		if m, ok := s.own[i].at(low, p, 0, emptyFolder); ok {
			return m, true
		}
	}
	return Match{}, false
}

// InRepository are the names that are guarded in the folder of a repository, relative to it.
func (s *Set) InRepository() []string {
	var names []string
	for _, n := range s.git {
		names = append(names, n.text)
	}
	return names
}

// obeyed are the names that make git run something in a folder that it takes for a repository (is_git_directory,
// setup.c).
var obeyed = []string{"config", "config.worktree", "commondir", "hooks"}

// Completes reports whether a folder that gets a name has a HEAD, by which git takes it for a repository, and one of
// the names that git obeys there. Without the latter git runs nothing; objects and refs, which it wants as well, may be
// anything, sockets too. has tells what the folder has. Some folders take names for the same that differ in case.
func (s *Set) Completes(name string, has func(name string) bool) bool {
	return !s.NewRepositories() && completes(name, has)
}

func completes(name string, has func(name string) bool) bool {
	low := lower(name)
	switch {
	case name == "HEAD":
		return slices.ContainsFunc(obeyed, has)
	case low == "head":
		return slices.ContainsFunc(obeyed, func(n string) bool { return has(n) && has(strings.ToUpper(n)) })
	case slices.Contains(obeyed, low):
		return has("HEAD") && (name == low || has("head"))
	}
	return false
}

// IsRepository reports whether git takes a folder for a repository; has tells what it has.
func IsRepository(has func(name string) bool) bool {
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// MakesRepository reports whether a folder that gets a name is a repository from then on, to git or by what Completes
// looks for: objects and refs may come to be by bind(2), which nobody is asked about.
func MakesRepository(name string, has func(name string) bool) bool {
	return slices.Contains([]string{"head", "objects", "refs", "commondir"}, lower(name)) && IsRepository(has) ||
		completes(name, has)
}

// Candidates are the names of which a folder at p, relative to the guarded one, has to be looked at for a name that it
// has: those whose first part is that name.
func (s *Set) Candidates(p, entry string) []string {
	low := lower(entry)
	rows := s.first[low]
	for _, i := range s.globs {
		if strings.HasSuffix(low, s.rows[i].text[1:]) {
			rows = append(slices.Clone(rows), i)
		}
	}
	if len(rows) == 0 { // most
		return nil
	}
	dependency := InDependency(p)
	var names []string
	for _, i := range rows {
		n := &s.rows[i]
		if n.depth == Top && p != "" || n.depth == Project && dependency {
			continue
		}
		if _, rest, below := strings.Cut(n.text, "/"); below {
			names = append(names, entry+"/"+rest)
		} else {
			names = append(names, entry)
		}
	}
	return names
}

// Own are the names of the caller's own.
func (s *Set) Own() []string {
	var names []string
	for _, n := range s.own {
		names = append(names, n.as)
	}
	return names
}

// at compares the path from at on. p is low as it was given.
func (n *name) at(low, p string, at int, emptyFolder bool) (Match, bool) {
	rest := low[at:]
	if suffix, glob := strings.CutPrefix(n.text, "*"); glob {
		first, _, _ := strings.Cut(rest, "/")
		if strings.HasSuffix(first, suffix) {
			return Match{Name: n.as, Path: p[:at+len(first)]}, true
		}
		return Match{}, false
	}
	switch {
	case rest == n.text, strings.HasPrefix(rest, n.text) && rest[len(n.text)] == '/':
		return Match{Name: n.as, Path: p[:at+len(n.text)]}, true
	case strings.HasPrefix(n.text, rest) && n.text[len(rest)] == '/' &&
		(!emptyFolder || rest == ".git" || strings.HasSuffix(rest, "/.git")):
		return Match{Name: n.as, Path: p, Above: true}, true
	}
	return Match{}, false
}

// lower is s with the letters A to Z in lower case, as long as s: some folders take both for the same.
func lower(s string) string {
	i := strings.IndexFunc(s, func(c rune) bool { return 'A' <= c && c <= 'Z' })
	if i < 0 {
		return s
	}
	b := []byte(s)
	for ; i < len(b); i++ {
		if c := b[i]; 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
