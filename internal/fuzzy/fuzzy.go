// Package fuzzy scores how well the letters of a query fit a path, as people pick files: runs of letters, beginnings of
// words and the last name count most. The scores are of the kind that fzf gives (Smith-Waterman with affine gaps).
package fuzzy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Points of an alignment.
const (
	hit        = 16 // a letter
	atName     = 10 // more, if it is the first of a name, behind a slash
	atWord     = 8  // or of a word
	atHump     = 7  // or a capital behind a small letter
	inRun      = 5  // or follows the letter before it
	firstTwo   = 2  // what is more for the query's first letter counts so often
	gapBegin   = 3  // points off for the first letter between two of the query,
	gapFurther = 1  // and for each further one
	lastName   = 4  // for a letter that is in the last name of the path
)

const (
	// maxWords and maxWord bound a query; what is beyond does not count.
	maxWords = 8
	maxWord  = 64 // runes
)

// Query is what is searched for: words that all must match.
type Query struct {
	words [][]rune
	exact []bool // upper and lower case differ: the word has a capital

	path   []rune
	small  []rune // path in lower case
	bonus  []int
	before []cell
	now    []cell
}

// cell is the best of the alignments up to a letter of the path: that end at it, and that end anywhere before.
type cell struct{ here, any int }

// none is the score of what does not match.
const none = -1 << 30

// New makes a query. It may be used by one goroutine at a time.
func New(text string) *Query {
	q := &Query{}
	for word := range strings.FieldsSeq(text) {
		runes := []rune(word)
		if len(q.words) == maxWords {
			break
		}
		runes = runes[:min(len(runes), maxWord)]
		exact := strings.IndexFunc(word, unicode.IsUpper) >= 0
		if !exact {
			for i := range runes {
				runes[i] = lower(runes[i]) // what is no capital may have a lower case, too
			}
		}
		q.words, q.exact = append(q.words, runes), append(q.exact, exact)
	}
	return q
}

// Empty is whether the query has no words, so that everything fits.
func (q *Query) Empty() bool { return len(q.words) == 0 }

// Score is how well path fits; ok is false where it does not.
func (q *Query) Score(path string) (score int, ok bool) {
	if q.Empty() {
		return 0, true
	}
	q.read(path)
	for i, word := range q.words {
		if !has(q.letters(i), word) {
			return 0, false
		}
	}
	q.prepare()
	for i, word := range q.words {
		score += max(q.align(word, q.letters(i)), 0)
	}
	return score, true
}

// has is whether the letters of word come in path in their order.
func has(path, word []rune) bool {
	i := 0
	for _, r := range path {
		if i < len(word) && r == word[i] {
			i++
		}
	}
	return i == len(word)
}

// letters are those of the path that word i is compared with.
func (q *Query) letters(i int) []rune {
	if q.exact[i] {
		return q.path
	}
	return q.small
}

func lower(r rune) rune {
	if r < utf8.RuneSelf {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return unicode.ToLower(r)
}

// read takes the letters of path.
func (q *Query) read(path string) {
	q.path, q.small = q.path[:0], q.small[:0]
	for _, r := range path {
		q.path, q.small = append(q.path, r), append(q.small, lower(r))
	}
}

// prepare notes what each letter of the path is worth beside matching.
func (q *Query) prepare() {
	q.bonus = q.bonus[:0]
	last := rune('/')
	for _, r := range q.path {
		more := 0
		switch {
		case last == '/':
			more = atName
		case !unicode.IsLetter(last) && !unicode.IsDigit(last):
			more = atWord
		case unicode.IsUpper(r) && unicode.IsLower(last), unicode.IsDigit(r) && !unicode.IsDigit(last):
			more = atHump
		}
		q.bonus = append(q.bonus, more)
		last = r
	}
	for i := len(q.path) - 1; i >= 0 && q.path[i] != '/'; i-- {
		q.bonus[i] += lastName
	}
	for len(q.now) < len(q.path)+1 {
		q.now, q.before = append(q.now, cell{}), append(q.before, cell{})
	}
}

// align is the best score of word in path. Time is the product of the lengths.
func (q *Query) align(word, path []rune) int {
	for i := range len(path) + 1 {
		q.before[i] = cell{none, 0}
	}
	for w, letter := range word {
		q.now[0] = cell{none, none}
		for i, r := range path {
			here := none
			if r == letter {
				more := q.bonus[i]
				if w == 0 {
					here = hit + more*firstTwo
				} else {
					here = max(q.before[i].any+more, q.before[i].here+max(more, inRun)) + hit
				}
			}
			// Behind this letter a gap begins, or goes on.
			away := max(q.now[i].here-gapBegin, q.now[i].any-gapFurther)
			q.now[i+1] = cell{here, away}
		}
		q.now, q.before = q.before, q.now
	}
	best := none
	for i := range len(q.path) + 1 {
		best = max(best, q.before[i].here)
	}
	return best
}
