// Package patch parses patches and applies them to the contents of files: unified diffs as git and diff -u write them,
// and the form that begins with "*** Begin Patch". Models write them, so counts of lines may be wrong and lines may
// have moved; what does not fit is said by file, hunk and line. Nothing here touches a file.
package patch

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Kind is what a patch does to a file.
type Kind string

// The kinds.
const (
	Added    Kind = "added"
	Modified Kind = "modified"
	Deleted  Kind = "deleted"
	Renamed  Kind = "renamed"
)

// File is what a patch does to one file.
type File struct {
	Path  string // after the patch; of a deleted file before it
	From  string // of a renamed file
	Kind  Kind
	Mode  uint32 // permission bits that the patch sets; 0: none
	Hunks []Hunk

	loose bool // lines may differ in their spaces
}

// Hunk is one piece of a change.
type Hunk struct {
	line    int      // where it is in the old file, from 1 on; 0 where it must be looked for
	anchors []string // lines somewhere before it, one after the other
	atEnd   bool     // it ends the file
	lines   []line
}

// line is one line of a hunk.
type line struct {
	kind  byte // ' ', '-' or '+'
	text  string
	noEnd bool // it ends the file without a line end
}

// Parse parses a patch. strip is how many leading folders of a unified diff's paths to take off, -1 to find out.
func Parse(text string, strip, maxFiles int) ([]File, error) {
	p := &parser{lines: strings.SplitAfter(text, "\n"), strip: strip}
	if n := len(p.lines); p.lines[n-1] == "" {
		p.lines = p.lines[:n-1]
	}
	err := p.parse()
	if err != nil {
		return nil, fmt.Errorf("line %d of the patch: %w", min(p.at+1, len(p.lines)), err)
	}
	if len(p.files) == 0 {
		return nil, errors.New("it changes no file: neither a unified diff (---, +++, @@) nor *** Begin Patch")
	}
	if len(p.files) > maxFiles {
		return nil, fmt.Errorf("it changes %d files, %d are possible", len(p.files), maxFiles)
	}
	seen := map[string]bool{}
	for _, f := range p.files {
		names := []string{f.Path}
		if f.Kind == Renamed {
			names = append(names, f.From)
		}
		for _, name := range names {
			switch {
			case name == "":
				return nil, errors.New("a file that it changes has no name: one stands behind ---, +++ and *** Add, Update and Delete File")
			case !local(name):
				return nil, fmt.Errorf("%.200q leads out of the folder", name)
			case seen[name]:
				return nil, fmt.Errorf("%.200q is changed twice: put its hunks together", name)
			}
			seen[name] = true
		}
	}
	return p.files, nil
}

// local is whether a path stays below its folder, as far as its text says.
func local(name string) bool {
	if name == "" || name[0] == '/' || strings.IndexByte(name, 0) >= 0 || len(name) >= 4096 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || part == "." || part == "" {
			return false
		}
	}
	return true
}

type parser struct {
	lines []string
	at    int
	strip int
	files []File
}

// peek is the line that comes next without its end; "" at the end of the patch.
func (p *parser) peek(ahead int) string {
	if p.at+ahead >= len(p.lines) {
		return ""
	}
	return strings.TrimSuffix(p.lines[p.at+ahead], "\n")
}

func (p *parser) more() bool { return p.at < len(p.lines) }

func (p *parser) parse() error {
	for ; p.more(); p.at++ {
		l := p.peek(0)
		switch {
		case strings.TrimSpace(l) == "*** Begin Patch":
			return p.begin()
		case strings.HasPrefix(l, "diff --git "), strings.HasPrefix(l, "--- ") && strings.HasPrefix(p.peek(1), "+++ "):
			return p.unified()
		}
	}
	return nil
}

func (p *parser) unified() error {
	for p.more() {
		l := p.peek(0)
		var err error
		switch {
		case strings.HasPrefix(l, "diff --git "):
			err = p.git()
		case strings.HasPrefix(l, "--- ") && strings.HasPrefix(p.peek(1), "+++ "):
			err = p.plain(header{})
		case strings.HasPrefix(l, "@@ "):
			err = errors.New("a hunk without the file that it is for (---, +++)")
		default: // words between the files, and what git says about them
			p.at++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// header is what git says of a file before its hunks.
type header struct {
	old, new    string // with their prefixes
	from, to    string // of a rename, without
	added, gone bool
	mode        uint32
}

func (p *parser) git() error {
	var h header
	rest := strings.TrimSuffix(strings.TrimPrefix(p.peek(0), "diff --git "), "\r")
	if n := len(rest); n%2 == 1 && rest[n/2] == ' ' && cutFirst(rest[:n/2]) == cutFirst(rest[n/2+1:]) {
		var errOld, errNew error
		h.old, errOld = unquote(rest[:n/2])
		h.new, errNew = unquote(rest[n/2+1:])
		if err := errors.Join(errOld, errNew); err != nil {
			return err
		}
	}
	for p.at++; p.more(); p.at++ {
		l := strings.TrimSuffix(p.peek(0), "\r")
		word := func(prefix string) (string, bool) { return strings.CutPrefix(l, prefix) }
		var err error
		if mode, ok := word("new file mode "); ok {
			h.added = true
			h.mode, err = fileMode(mode)
		} else if mode, ok := word("new mode "); ok {
			h.mode, err = fileMode(mode)
		} else if _, ok := word("deleted file mode "); ok {
			h.gone = true
		} else if from, ok := word("rename from "); ok {
			h.from, err = unquote(from)
		} else if to, ok := word("rename to "); ok {
			h.to, err = unquote(to)
		} else if strings.HasPrefix(l, "copy from ") {
			err = errors.New("copies of files are not possible: add the file")
		} else if l == "GIT binary patch" || strings.HasPrefix(l, "Binary files ") {
			err = errors.New("changes of binary files are not possible")
		} else if strings.HasPrefix(l, "--- ") && strings.HasPrefix(p.peek(1), "+++ ") {
			return p.plain(h)
		} else if !strings.HasPrefix(l, "index ") && !strings.HasPrefix(l, "old mode ") &&
			!strings.HasPrefix(l, "similarity ") && !strings.HasPrefix(l, "dissimilarity ") {
			break
		}
		if err != nil {
			return err
		}
	}
	if h.from == "" && (h.old == "" || !h.added && !h.gone && h.mode == 0) {
		return errors.New("a file without a change, or whose name is unclear")
	}
	return p.add(&h, nil)
}

func cutFirst(name string) string {
	_, rest, _ := strings.Cut(name, "/")
	return rest
}

// fileMode is the permissions of a mode as git writes it.
func fileMode(mode string) (uint32, error) {
	switch mode {
	case "100644":
		return 0o644, nil
	case "100755":
		return 0o755, nil
	}
	return 0, fmt.Errorf("a file of mode %.16q: only regular files can be patched", mode)
}

// plain parses the names of a file and its hunks.
func (p *parser) plain(h header) error {
	var err error
	if h.old, err = name(p.peek(0)); err == nil {
		h.new, err = name(p.peek(1))
	}
	if err != nil {
		return err
	}
	p.at += 2
	h.added = h.added || h.old == devNull
	h.gone = h.gone || h.new == devNull
	var hunks []Hunk
	for strings.HasPrefix(p.peek(0), "@@ ") {
		hunk, err := p.hunk()
		if err != nil {
			return err
		}
		hunks = append(hunks, hunk)
	}
	if len(hunks) == 0 {
		return fmt.Errorf("%.200q has no hunk (@@ -1,2 +1,2 @@)", h.new)
	}
	return p.add(&h, hunks)
}

const devNull = "/dev/null"

// name is the name in a line that begins with --- or +++, behind which a time may be.
func name(l string) (string, error) {
	l, _, _ = strings.Cut(strings.TrimSuffix(l[4:], "\r"), "\t")
	return unquote(strings.TrimRight(l, " "))
}

// unquote takes the quotes off a name with special bytes.
func unquote(name string) (string, error) {
	if !strings.HasPrefix(name, `"`) {
		return name, nil
	}
	plain, err := strconv.Unquote(name)
	if err != nil {
		return "", fmt.Errorf("%.200q is not a quoted name", name)
	}
	return plain, nil
}

// add adds a file, with the prefixes taken off its names.
func (p *parser) add(h *header, hunks []Hunk) error {
	strip := p.strip
	if strip < 0 {
		strip = 0
		if (h.old == devNull || strings.HasPrefix(h.old, "a/")) &&
			(h.new == devNull || strings.HasPrefix(h.new, "b/")) {
			strip = 1
		}
	}
	take := func(name string) (string, error) {
		rest := name
		for range strip {
			var ok bool
			if _, rest, ok = strings.Cut(rest, "/"); !ok {
				return "", fmt.Errorf("%.200q has no %d folders to take off (strip)", name, strip)
			}
		}
		if strings.HasPrefix(rest, "/") || rest == "" {
			return rest, nil // refused by Parse
		}
		return path.Clean(rest), nil
	}
	f := File{Kind: Modified, Mode: h.mode, Hunks: hunks}
	var err error
	switch {
	case h.added && h.gone:
		return errors.New("a file that is both new and deleted")
	case h.gone:
		f.Kind = Deleted
		f.Path, err = take(h.old)
	case h.added:
		f.Kind = Added
		f.Path, err = take(h.new)
	case h.from != "" && h.to != "":
		f.Kind, f.From, f.Path = Renamed, h.from, h.to
	default:
		f.Path, err = take(h.new)
	}
	p.files = append(p.files, f)
	return err
}

// hunk parses one hunk of a unified diff. Its counts say where it ends, but may be wrong.
func (p *parser) hunk() (h Hunk, err error) {
	var oldLeft, newLeft int
	if h.line, oldLeft, newLeft, err = ranges(p.peek(0)); err != nil {
		return h, err
	}
	if oldLeft == 0 {
		h.line++ // it comes behind the line that is named
	}
	for p.at++; p.more(); p.at++ {
		l := p.peek(0)
		done := oldLeft <= 0 && newLeft <= 0
		kind := byte(' ')
		if l != "" && l != "\r" {
			kind = l[0]
			l = l[1:]
		} else if done {
			return h, nil
		}
		switch {
		case kind == '\\':
			if n := len(h.lines); n > 0 {
				h.lines[n-1].noEnd = true
			}
			continue
		case kind != ' ' && kind != '-' && kind != '+', done && kind == '-' && l == "- ": // a mail's signature
			return h, nil
		case kind == '-' && strings.HasPrefix(l, "-- ") && strings.HasPrefix(p.peek(1), "+++ ") &&
			strings.HasPrefix(p.peek(2), "@@ ") && (oldLeft != 1 || newLeft != 1):
			return h, nil
		}
		if kind != '+' {
			oldLeft--
		}
		if kind != '-' {
			newLeft--
		}
		h.lines = append(h.lines, line{kind: kind, text: l})
	}
	return h, nil
}

// ranges parses the line that a hunk begins with.
func ranges(l string) (from, oldLines, newLines int, err error) {
	words := strings.Fields(l)
	if len(words) < 4 || words[3] != "@@" || !strings.HasPrefix(words[1], "-") || !strings.HasPrefix(words[2], "+") {
		return 0, 0, 0, fmt.Errorf("%.100q is not like @@ -1,2 +1,2 @@", l)
	}
	one := func(word string) (start, count int, err error) {
		first, second, ok := strings.Cut(word[1:], ",")
		if !ok {
			second = "1"
		}
		start, err1 := strconv.Atoi(first)
		count, err2 := strconv.Atoi(second)
		if err1 != nil || err2 != nil || start < 0 || count < 0 || start > 1<<30 || count > 1<<30 {
			return 0, 0, fmt.Errorf("%.100q is not like @@ -1,2 +1,2 @@", l)
		}
		return start, count, nil
	}
	if from, oldLines, err = one(words[1]); err == nil {
		_, newLines, err = one(words[2])
	}
	return from, oldLines, newLines, err
}
