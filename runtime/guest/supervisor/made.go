package supervisor

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// madeList has the folders that have become repositories since hutchd asked last. Its room is its own: no number of
// refusals, however fast and whatever their paths, takes any of it. What there is no room for is said to be more.
type madeList struct {
	mu     sync.Mutex
	fresh  madePaths
	handed madePaths // by the answer with this number, of which it is not known yet that it has arrived
	number uint64
}

// madePaths are some of them, bounded.
type madePaths struct {
	paths []madePath
	bytes int
	more  bool
}

// madePath is a path as it is on disk, and as text.
type madePath struct{ path, text string }

// add adds a path that is not there yet.
func (p *madePaths) add(m madePath) {
	if slices.ContainsFunc(p.paths, func(o madePath) bool { return o.path == m.path }) {
		return
	}
	encoded, _ := json.Marshal(m.text) // a string cannot fail
	size := len(m.path) + len(encoded)
	if len(p.paths) >= guestapi.MaxMade || p.bytes+size > guestapi.MaxMadeBytes {
		p.more = true
		return
	}
	p.paths, p.bytes = append(p.paths, m), p.bytes+size
}

// add notes a folder that has become a repository. One that was handed over may have been removed since, and made anew.
func (l *madeList) add(p string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh.add(madePath{p, wireText(p)})
}

// take returns what was made since the last answer that has arrived, as acks say, and remembers it until the answer
// with this number has.
func (l *madeList) take(number uint64, acks []uint64) (paths []string, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(acks, l.number) {
		l.handed = madePaths{}
	}
	for _, m := range l.fresh.paths {
		l.handed.add(m)
	}
	l.handed.more = l.handed.more || l.fresh.more
	l.fresh, l.number = madePaths{}, number
	for _, m := range l.handed.paths {
		paths = append(paths, m.text)
	}
	return paths, l.handed.more
}

// wireText is a path as hutchd takes it: of UTF-8, which JSON makes longer where it is none, and bounded.
func wireText(p string) string {
	p = strings.ToValidUTF8(p, string(utf8.RuneError))
	if len(p) <= guestapi.MaxPath {
		return p
	}
	return strings.ToValidUTF8(p[:guestapi.MaxPath], "")
}
