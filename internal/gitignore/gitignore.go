// Package gitignore tells which files the patterns of a .gitignore are about, as gitignore(5) has it. Matching takes
// time that is polynomial in the lengths of pattern and path, whatever they hold: both come from sandboxes.
package gitignore

import (
	"strings"
)

// Verdict is what patterns say of a path.
type Verdict int

// The verdicts.
const (
	None    Verdict = iota // no pattern is about it
	Ignore                 // it is left out
	Include                // a pattern with ! takes it back
)

const (
	// maxPatterns and maxPattern bound a list; what is beyond is not looked at.
	maxPatterns = 4096
	maxPattern  = 1024 // bytes
)

// List are the patterns of one file.
type List struct{ rules []rule }

type rule struct {
	include bool
	folder  bool     // about folders only
	name    string   // of a pattern that is about names, wherever they are
	parts   []string // of one that is about paths below the list's own folder; "**" is any number of folders
	literal bool     // name has nothing special
	suffix  string   // of a name that is "*" and this, without anything special
}

// Parse parses a file of patterns, one on each line.
func Parse(text string) *List {
	l := &List{}
	text = strings.TrimPrefix(text, "\ufeff")
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if r, ok := parse(line); ok && len(l.rules) < maxPatterns {
			l.rules = append(l.rules, r)
		}
	}
	return l
}

// Globs makes a list of patterns that were given one by one, in which nothing is a comment.
func Globs(patterns []string) *List {
	l := &List{}
	for _, p := range patterns {
		if r, ok := parse(p); ok && len(l.rules) < maxPatterns {
			l.rules = append(l.rules, r)
		}
	}
	return l
}

func parse(line string) (r rule, ok bool) {
	line = trimSpaces(line)
	if line, r.include = strings.CutPrefix(line, "!"); line == "" || len(line) > maxPattern {
		return r, false
	}
	if strings.HasPrefix(line, `\!`) || strings.HasPrefix(line, `\#`) {
		line = line[1:]
	}
	line, r.folder = strings.CutSuffix(line, "/")
	if line == "" {
		return r, false
	}
	if !strings.Contains(line, "/") {
		r.name = line
		r.literal = !strings.ContainsAny(line, `*?[\`)
		if rest, ok := strings.CutPrefix(line, "*"); ok && !strings.ContainsAny(rest, `*?[\`) {
			r.suffix = rest
		}
		return r, true
	}
	r.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")
	return r, true
}

// trimSpaces takes off spaces at the end that no backslash keeps.
func trimSpaces(line string) string {
	for strings.HasSuffix(line, " ") {
		slashes := 0
		for i := len(line) - 2; i >= 0 && line[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 1 {
			return line
		}
		line = line[:len(line)-1]
	}
	return line
}

// Empty is whether the list is about nothing.
func (l *List) Empty() bool { return l == nil || len(l.rules) == 0 }

// Positive is whether a pattern without ! is in the list.
func (l *List) Positive() bool {
	for i := range l.rules {
		if !l.rules[i].include {
			return true
		}
	}
	return false
}

// Match is what the last pattern about path says. The path is relative to the list's folder. That a folder above it is
// ignored is for the caller to see, who does not go into that one.
func (l *List) Match(path string, folder bool) Verdict {
	if l == nil {
		return None
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	for i := len(l.rules) - 1; i >= 0; i-- {
		if r := &l.rules[i]; (folder || !r.folder) && r.match(path, name) {
			if r.include {
				return Include
			}
			return Ignore
		}
	}
	return None
}

func (r *rule) match(path, name string) bool {
	switch {
	case r.literal:
		return name == r.name
	case r.suffix != "":
		return strings.HasSuffix(name, r.suffix)
	case r.parts == nil:
		return matchName(r.name, name)
	}
	return matchPath(r.parts, path)
}

// matchPath matches the parts of a pattern one by one. Of several "**" only the last one that was met is ever tried
// again: what it could give to those before is nothing that it cannot take itself.
func matchPath(parts []string, path string) bool {
	back, from := -1, "" // where to go on when the last "**" takes one folder more
	done := false        // nothing is left of path
	p := 0
	for {
		switch {
		case p < len(parts) && parts[p] == "**":
			if p == len(parts)-1 {
				return !done // all that is inside
			}
			back, from = p+1, path
			if done {
				return false
			}
			p++
			continue
		case p < len(parts) && !done:
			name, rest, more := strings.Cut(path, "/")
			if matchName(parts[p], name) {
				p++
				path, done = rest, !more
				continue
			}
		case p == len(parts) && done:
			return true
		}
		if back < 0 {
			return false
		}
		_, rest, more := strings.Cut(from, "/")
		if !more {
			return false
		}
		p, path, from, done = back, rest, rest, false
	}
}

// matchName matches one name. A "*" takes as little as it can, and the last one more when what follows does not fit.
func matchName(pattern, name string) bool {
	back, from := -1, 0
	p, n := 0, 0
	for n < len(name) || p < len(pattern) {
		if p < len(pattern) && pattern[p] == '*' {
			back, from = p+1, n
			p++
			continue
		}
		if n < len(name) && p < len(pattern) {
			if used := matchByte(pattern[p:], name[n]); used > 0 {
				p, n = p+used, n+1
				continue
			}
		}
		if back < 0 || from >= len(name) {
			return false
		}
		from++
		p, n = back, from
	}
	return true
}

// matchByte matches what a pattern begins with, which is no "*", and returns how much of it that is.
func matchByte(pattern string, b byte) (used int) {
	switch pattern[0] {
	case '?':
		return 1
	case '[':
		return matchClass(pattern, b)
	case '\\':
		if len(pattern) > 1 && pattern[1] == b {
			return 2
		}
		return 0
	}
	if pattern[0] == b {
		return 1
	}
	return 0
}

// posix are the classes of [[:name:]].
var posix = map[string]func(b byte) bool{
	"alpha": isAlpha, "digit": isDigit, "upper": isUpper, "lower": isLower,
	"alnum": func(b byte) bool { return isAlpha(b) || isDigit(b) },
	"space": func(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' },
	"blank": func(b byte) bool { return b == ' ' || b == '\t' },
	"punct": func(b byte) bool { return b > ' ' && b < 0x7f && !isAlpha(b) && !isDigit(b) },
	"graph": func(b byte) bool { return b > ' ' && b < 0x7f },
	"print": func(b byte) bool { return b >= ' ' && b < 0x7f },
	"cntrl": func(b byte) bool { return b < ' ' || b == 0x7f },
	"xdigit": func(b byte) bool {
		return isDigit(b) || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
	},
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }
func isLower(b byte) bool { return b >= 'a' && b <= 'z' }
func isAlpha(b byte) bool { return isUpper(b) || isLower(b) }
func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// matchClass matches a class like [a-z]; one without its end matches nothing.
func matchClass(pattern string, b byte) (used int) {
	i, not, found := 1, false, false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		i, not = i+1, true
	}
	for first := true; i < len(pattern) && (pattern[i] != ']' || first); first = false {
		// The end is looked for only behind a beginning: else each byte of a class costs all that follow.
		name, rest, ok := pattern[i:], "", strings.HasPrefix(pattern[i:], "[:")
		if ok {
			name, rest, ok = strings.Cut(name, ":]")
		}
		if ok {
			is := posix[name[2:]]
			if is == nil {
				return 0
			}
			found = found || is(b)
			i = len(pattern) - len(rest)
			continue
		}
		lo, n := classByte(pattern[i:])
		i += n
		hi := lo
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			hi, n = classByte(pattern[i+1:])
			i += n + 1
		}
		found = found || lo <= b && b <= hi
	}
	if i >= len(pattern) || found == not {
		return 0
	}
	return i + 1
}

func classByte(pattern string) (b byte, used int) {
	if pattern[0] == '\\' && len(pattern) > 1 {
		return pattern[1], 2
	}
	return pattern[0], 1
}
