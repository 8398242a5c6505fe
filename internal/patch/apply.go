package patch

import (
	"errors"
	"fmt"
	"strings"
)

// Fit is how well a patch fitted a file.
type Fit struct {
	Fuzz   int   // lines that did not fit exactly
	Offset int64 // the farthest that a hunk was found from where it should be, in lines
}

// How exactly lines must be the same.
const (
	exactly = iota
	sameEnd // but for a carriage return
	sameTrail
	sameWords // but for spaces at both ends
)

// maxEdge is how many lines of context may be left out at each edge of a unified diff's hunk.
const maxEdge = 2

// maxTries bounds the comparisons of one file: what is searched in and for is hostile.
const maxTries = 50_000_000

// Apply makes the new content of a file, whose path and hunk an error names.
func (f *File) Apply(content string) (changed string, fit Fit, err error) {
	a := &applier{lines: strings.SplitAfter(content, "\n"), fit: &fit}
	if n := len(a.lines); a.lines[n-1] == "" {
		a.lines = a.lines[:n-1]
	}
	if f.Kind == Added && content != "" {
		return "", fit, fmt.Errorf("%s: is there already", f.Path)
	}
	name := f.Path
	if f.From != "" {
		name = f.From
	}
	for i := range f.Hunks {
		if err := a.hunk(&f.Hunks[i], f.loose); err != nil {
			return "", fit, fmt.Errorf("%s: hunk %d of %d does not fit: %w", name, i+1, len(f.Hunks), err)
		}
	}
	a.copyTo(len(a.lines))
	return strings.Join(a.out, ""), fit, nil
}

type applier struct {
	lines []string // of the old content, with their ends
	out   []string // of the new one
	at    int      // the line that comes next
	shift int      // by how much the last hunk was off
	tries int
	fit   *Fit
}

func (a *applier) copyTo(line int) {
	for ; a.at < line; a.at++ {
		a.put(a.lines[a.at])
	}
}

// put adds a line; the one before it must have an end then.
func (a *applier) put(l string) {
	if n := len(a.out); n > 0 && !strings.HasSuffix(a.out[n-1], "\n") {
		a.out[n-1] += "\n"
	}
	a.out = append(a.out, l)
}

func (a *applier) hunk(h *Hunk, loose bool) error {
	from := a.at
	for _, anchor := range h.anchors {
		i := from
		for i < len(a.lines) && strings.TrimSpace(a.lines[i]) != anchor {
			i++
		}
		if i == len(a.lines) {
			return fmt.Errorf("no line %.200q (@@) from line %d on", anchor, from+1)
		}
		from = i + 1
	}
	old := make([]string, 0, len(h.lines))
	for _, l := range h.lines {
		if l.kind != '+' {
			old = append(old, l.text)
		}
	}
	want := from
	switch {
	case h.line > 0:
		want = h.line - 1 + a.shift
	case h.atEnd || len(old) == 0 && len(h.anchors) == 0: // lines without a place go to the end
		want = len(a.lines) - len(old)
	}
	if len(old) == 0 {
		want = max(min(want, len(a.lines)), from)
		return a.apply(h.lines, want, exactly)
	}
	levels, edges := []int{exactly, sameEnd}, maxEdge
	if loose {
		levels, edges = []int{exactly, sameEnd, sameTrail, sameWords}, 0
	}
	for _, level := range levels {
		if at := a.search(old, from, want, level); at >= 0 {
			return a.found(h, at, want, level, 0, 0)
		}
	}
	for edge := 1; edge <= edges; edge++ {
		head, tail := context(h.lines, edge)
		if head+tail == 0 || head+tail >= len(old) {
			break
		}
		if at := a.search(old[head:len(old)-tail], from, want+head, sameEnd); at >= 0 {
			return a.found(h, at, want+head, sameEnd, head, tail)
		}
	}
	if a.tries > maxTries {
		return errors.New("too much to search through")
	}
	return a.differs(old, want, from)
}

// context is how many lines of context a hunk begins and ends with, at most edge.
func context(lines []line, edge int) (head, tail int) {
	for head < min(edge, len(lines)) && lines[head].kind == ' ' {
		head++
	}
	for tail < min(edge, len(lines)-head) && lines[len(lines)-1-tail].kind == ' ' {
		tail++
	}
	return head, tail
}

// found applies a hunk, of which head and tail lines are left out.
func (a *applier) found(h *Hunk, at, want, level, head, tail int) error {
	if off := at - want; h.line > 0 {
		a.shift += off
		a.fit.Offset = max(a.fit.Offset, int64(max(off, -off)))
	}
	a.fit.Fuzz += head + tail
	return a.apply(h.lines[head:len(h.lines)-tail], at, level)
}

// search finds old, from the wanted line on to both sides; -1 where it is not.
func (a *applier) search(old []string, from, want, level int) int {
	last := len(a.lines) - len(old)
	if last < from {
		return -1
	}
	// The first line within the file: the wanted one is the patch's word, and may be millions beyond.
	for d := max(0, want-last, from-want); want+d <= last || want-d >= from; d++ {
		if i := want + d; i >= from && i <= last && a.fits(old, i, level) {
			return i
		}
		if i := want - d; d > 0 && i >= from && i <= last && a.fits(old, i, level) {
			return i
		}
		if a.tries++; a.tries > maxTries {
			return -1
		}
	}
	return -1
}

func (a *applier) fits(old []string, at, level int) bool {
	for i, l := range old {
		if a.tries++; !same(a.lines[at+i], l, level) {
			return false
		}
	}
	return true
}

func same(have, want string, level int) bool {
	have = strings.TrimSuffix(have, "\n")
	switch level {
	case sameEnd:
		return strings.TrimSuffix(have, "\r") == strings.TrimSuffix(want, "\r")
	case sameTrail:
		return strings.TrimRight(have, " \t\r") == strings.TrimRight(want, " \t\r")
	case sameWords:
		return strings.TrimSpace(have) == strings.TrimSpace(want)
	}
	return have == want
}

// apply makes the lines of a hunk, whose old ones are at line at.
func (a *applier) apply(lines []line, at, level int) error {
	a.copyTo(at)
	end := "\n"
	if len(a.lines) > 0 && strings.HasSuffix(a.lines[0], "\r\n") {
		end = "\r\n"
	}
	for _, l := range lines {
		if l.kind == '+' {
			text := l.text
			if level > exactly { // the file's line ends, not the patch's
				text = strings.TrimSuffix(text, "\r") + strings.TrimSuffix(end, "\n")
			}
			if !l.noEnd {
				text += "\n"
			}
			a.put(text)
			continue
		}
		if level > sameEnd && !same(a.lines[a.at], l.text, sameEnd) {
			a.fit.Fuzz++
		}
		if l.kind == ' ' {
			a.put(a.lines[a.at])
		}
		a.at++
	}
	return nil
}

// differs says what is where a hunk should be.
func (a *applier) differs(old []string, want, from int) error {
	want = max(min(want, len(a.lines)-1), min(from, len(a.lines)-1), 0)
	best, at := 0, want
	for i := from; i < len(a.lines) && a.tries < 2*maxTries; i++ { // where most of its beginning fits
		n := 0
		for n < len(old) && i+n < len(a.lines) && same(a.lines[i+n], old[n], sameWords) {
			n++
			a.tries++
		}
		if n > best {
			best, at = n, i
		}
	}
	if best == len(old) {
		return fmt.Errorf("its lines differ in spaces only from those at line %d, which begin with %q", at+1,
			excerpt(a.lines[at]))
	}
	if len(a.lines) == 0 {
		return fmt.Errorf("the file is empty, and the patch has %q", excerpt(old[0]))
	}
	if at+best >= len(a.lines) {
		return fmt.Errorf("the file ends at line %d, where the patch has %q", len(a.lines), excerpt(old[best]))
	}
	return fmt.Errorf("line %d is %q, and the patch has %q", at+best+1, excerpt(a.lines[at+best]), excerpt(old[best]))
}

func excerpt(l string) string {
	l = strings.ToValidUTF8(strings.TrimRight(l, "\r\n"), "\uFFFD")
	if len(l) > 160 {
		l = strings.ToValidUTF8(l[:160], "") + "..."
	}
	return l
}
