package lines

import (
	"bytes"
	"regexp"
	"regexp/syntax"
)

// Matcher finds the lines that an expression matches. It may be used by one goroutine at a time; Clone it for others.
type Matcher struct {
	line  *regexp.Regexp // of one line
	whole *regexp.Regexp // of a text of many, nil where lines must be tried one by one
	plain []byte         // instead of both, what is searched for
	must  *literals

	folded []byte // the text in lower case
}

// New makes a matcher. A literal pattern is taken as it is.
func New(pattern string, literal, ignoreCase bool) (*Matcher, error) {
	m := &Matcher{}
	if literal && !ignoreCase {
		m.plain = []byte(pattern)
		return m, nil
	}
	if literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	flags := "(?m)"
	if ignoreCase {
		flags = "(?mi)"
	}
	var err error
	if m.line, err = regexp.Compile(flags + "(?:" + pattern + ")"); err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(m.line.String(), syntax.Perl)
	if err != nil {
		return nil, err
	}
	m.must = required(tree.Simplify())
	if m.must == nil && !hasTextEdge(tree) {
		withoutEnds(tree)
		m.whole, err = regexp.Compile(tree.String())
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Clone makes a matcher for another goroutine.
func (m *Matcher) Clone() *Matcher {
	c := *m
	c.folded = nil
	return &c
}

// hasTextEdge is whether re says something of the begin or end of the text, which is a line's only where a line is
// matched alone.
func hasTextEdge(re *syntax.Regexp) bool {
	if re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText {
		return true
	}
	for _, sub := range re.Sub {
		if hasTextEdge(sub) {
			return true
		}
	}
	return false
}

// withoutEnds keeps an expression from matching ends of lines, so that in a text of many it does not run from
// each line to the end of all.
func withoutEnds(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpAnyChar:
		re.Op = syntax.OpAnyCharNotNL
	case syntax.OpCharClass:
		var ranges []rune
		for i := 0; i < len(re.Rune); i += 2 {
			lo, hi := re.Rune[i], re.Rune[i+1]
			if lo > '\n' || hi < '\n' {
				ranges = append(ranges, lo, hi)
				continue
			}
			if lo < '\n' {
				ranges = append(ranges, lo, '\n'-1)
			}
			if hi > '\n' {
				ranges = append(ranges, '\n'+1, hi)
			}
		}
		if re.Rune = ranges; len(ranges) == 0 {
			re.Op = syntax.OpNoMatch
		}
	}
	for _, sub := range re.Sub {
		withoutEnds(sub)
	}
}

// Each calls f with where each line that matches begins and ends, in order, without its end, until f says no. The text
// is whole lines; the last one may have no end.
func (m *Matcher) Each(text []byte, f func(begin, end int) (more bool)) {
	search := text
	if m.must != nil && m.must.fold {
		m.folded = lower(m.folded, text)
		search = m.folded
	}
	// Where each literal was met last, so that one that is rare is not searched for again and again.
	var met [maxLiterals]int
	for at := 0; at < len(text); {
		next := m.candidate(text, search, at, &met)
		if next < 0 {
			return
		}
		begin := bytes.LastIndexByte(text[at:next], '\n') + 1 + at
		end := len(text)
		if i := bytes.IndexByte(text[next:], '\n'); i >= 0 {
			end = next + i
		}
		at = end + 1
		if (m.plain != nil || m.line.Match(text[begin:end])) && !f(begin, end) {
			return
		}
	}
}

// candidate is a byte of the next line that may match, from the line at on.
func (m *Matcher) candidate(text, search []byte, at int, met *[maxLiterals]int) int {
	switch {
	case m.plain != nil:
		return after(text, m.plain, at)
	case m.must != nil:
		first := -1
		for i, lit := range m.must.texts {
			if met[i] >= 0 && met[i] <= at {
				met[i] = after(search, lit, at)
			}
			if met[i] >= 0 && (first < 0 || met[i] < first) {
				first = met[i]
			}
		}
		return first
	case m.whole != nil:
		loc := m.whole.FindIndex(text[at:])
		// an empty match behind the last line is none of a line
		if loc == nil || at+loc[0] == len(text) && text[len(text)-1] == '\n' {
			return -1
		}
		return at + loc[0]
	}
	return at
}

func after(text, lit []byte, at int) int {
	i := bytes.Index(text[at:], lit)
	if i < 0 {
		return -1
	}
	return at + i
}
