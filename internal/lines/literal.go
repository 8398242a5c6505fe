// Package lines matches regular expressions against the lines of a text.
package lines

import (
	"bytes"
	"regexp/syntax"
	"unicode/utf8"
)

// literals are texts of which every match holds at least one.
type literals struct {
	texts [][]byte
	fold  bool // texts are lower case, and so must be what is searched in
}

// maxLiterals bounds how often a text is searched through for them.
const maxLiterals = 8

// required finds what every match of re must hold; nil where nothing is known.
func required(re *syntax.Regexp) *literals {
	switch re.Op {
	case syntax.OpLiteral:
		return ofLiteral(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best *literals
		for _, sub := range re.Sub {
			if l := required(sub); l != nil && (best == nil || l.worth() > best.worth()) {
				best = l
			}
		}
		return best
	case syntax.OpAlternate:
		all := &literals{}
		for i, sub := range re.Sub {
			l := required(sub)
			if l == nil || i > 0 && l.fold != all.fold {
				return nil
			}
			all.fold = l.fold
			all.texts = append(all.texts, l.texts...)
		}
		if len(all.texts) <= maxLiterals {
			return all
		}
	}
	return nil
}

// worth is how rarely the literals are met: the longer and fewer the better.
func (l *literals) worth() int {
	shortest := len(l.texts[0])
	for _, t := range l.texts {
		shortest = min(shortest, len(t))
	}
	return shortest*4 - len(l.texts)
}

func ofLiteral(re *syntax.Regexp) *literals {
	if re.Flags&syntax.FoldCase == 0 {
		return &literals{texts: [][]byte{[]byte(string(re.Rune))}}
	}
	// Only letters of ASCII that have no other form outside of it: k is also the Kelvin sign, s the long s.
	var run, best []byte
	for _, r := range re.Rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if r >= utf8.RuneSelf || r == 'k' || r == 's' {
			run = nil
			continue
		}
		if run = append(run, byte(r)); len(run) > len(best) {
			best = run
		}
	}
	if len(best) == 0 {
		return nil
	}
	return &literals{texts: [][]byte{bytes.Clone(best)}, fold: true}
}

// lower makes the ASCII letters of text lower case, in to.
func lower(to, text []byte) []byte {
	to = append(to[:0], text...)
	for i, b := range to {
		if b-'A' < 26 {
			to[i] = b + ('a' - 'A')
		}
	}
	return to
}
