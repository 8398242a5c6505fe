package files

import (
	"fmt"
	"strings"
)

// edit puts text in the place of the bytes from start to end.
type edit struct {
	start, end int
	text       string
}

// applied is the content with the edits, which are in order.
func applied(content string, edits []edit, most int64) (string, error) {
	size := int64(len(content))
	for _, e := range edits {
		size += int64(len(e.text)) - int64(e.end-e.start)
	}
	if size > most {
		return "", tooLarge(most)
	}
	var out strings.Builder
	out.Grow(int(size))
	at := 0
	for _, e := range edits {
		out.WriteString(content[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.WriteString(content[at:])
	return out.String(), nil
}

const (
	// shownEdits is how many replacements a diff has at most, and around how many lines each hunk shows beside them.
	shownEdits = 200
	around     = 3
)

// block are whole lines that edits change.
type block struct {
	start, end int // in the old content
	line       int // the first, from 0 on
	text       string
}

// blocks puts edits of the same lines together.
func blocks(content string, edits []edit) (list []block) {
	line, at := 0, 0
	for i := 0; i < len(edits); {
		b := block{start: strings.LastIndexByte(content[:edits[i].start], '\n') + 1}
		line += strings.Count(content[at:b.start], "\n")
		b.line, at = line, b.start
		var text strings.Builder
		for b.end = b.start; i < len(edits) && (b.end == b.start || edits[i].start < b.end); i++ {
			e := edits[i]
			text.WriteString(content[at:e.start])
			text.WriteString(e.text)
			at, b.end = e.end, e.end
			// The line that the edit ends in belongs to it, unless both the old and the new end with a line.
			whole := strings.HasSuffix(e.text, "\n") || e.text == "" && (e.start == 0 || content[e.start-1] == '\n')
			if !whole || e.end == 0 || content[e.end-1] != '\n' {
				if n := strings.IndexByte(content[e.end:], '\n'); n >= 0 {
					b.end += n + 1
				} else {
					b.end = len(content)
				}
			}
		}
		text.WriteString(content[at:b.end])
		b.text = text.String()
		at = b.start
		list = append(list, b)
		line += strings.Count(content[at:b.end], "\n")
		at = b.end
	}
	return list
}

// diff is a unified diff of the first edits.
func diff(path, content string, edits []edit, most int) (text []byte, truncated bool) {
	shown := edits[:min(len(edits), shownEdits)]
	list := blocks(content, shown)
	out := fmt.Appendf(nil, "--- %s\n+++ %s\n", path, path)
	for shift := 0; len(list) > 0 && len(out) <= most; {
		n := 1
		for n < len(list) && strings.Count(content[list[n-1].end:list[n].start], "\n") <= 2*around {
			n++
		}
		var moved int
		out, moved = hunk(out, content, list[:n], shift)
		shift += moved
		list = list[n:]
	}
	truncated = len(shown) < len(edits)
	if len(out) > most {
		out, truncated = out[:most], true
		if i := strings.LastIndexByte(string(out), '\n'); i >= 0 {
			out = out[:i+1]
		}
	}
	return out, truncated
}

// hunk writes one hunk; shift is by how many lines what comes before is longer now.
func hunk(out []byte, content string, list []block, shift int) (longer []byte, moved int) {
	begin, line := list[0].start, list[0].line
	for i := 0; i < around && begin > 0; i++ {
		begin, line = strings.LastIndexByte(content[:begin-1], '\n')+1, line-1
	}
	last := list[len(list)-1].end
	end := last
	for i := 0; i < around && end < len(content); i++ {
		if n := strings.IndexByte(content[end:], '\n'); n >= 0 {
			end += n + 1
		} else {
			end = len(content)
		}
	}
	var body []byte
	var before, after int
	at := begin
	for _, b := range list {
		body = mark(body, ' ', content[at:b.start], &before, &after)
		body = mark(body, '-', content[b.start:b.end], &before, nil)
		body = mark(body, '+', b.text, nil, &after)
		at = b.end
	}
	body = mark(body, ' ', content[last:end], &before, &after)
	from, to := line+1, line+1+shift
	if before == 0 {
		from--
	}
	if after == 0 {
		to--
	}
	out = fmt.Appendf(out, "@@ -%d,%d +%d,%d @@\n", from, before, to, after)
	return append(out, body...), after - before
}

// mark writes lines with what they are before them.
func mark(out []byte, kind byte, text string, counts ...*int) []byte {
	for l := range strings.Lines(text) {
		out = append(append(out, kind), l...)
		if !strings.HasSuffix(l, "\n") {
			out = append(out, "\n\\ No newline at end of file\n"...)
		}
		for _, n := range counts {
			if n != nil {
				*n++
			}
		}
	}
	return out
}
