package files

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

const (
	// maxReplacements bounds the matches of one call.
	maxReplacements = 1 << 20
	// shownLines is how many lines an error names.
	shownLines = 10
)

// replace replaces a text in a file, which it writes as write does.
func (c *call) replace() (*filesapi.Reply, error) {
	var args filesapi.ReplaceArgs
	if err := c.args(&args); err != nil {
		return nil, err
	}
	content, was, err := c.text(args.MaxSize)
	if err != nil {
		return nil, err
	}
	edits, err := c.edits(content, &args)
	if err != nil {
		return nil, err
	}
	result := filesapi.Replaced{Count: int64(len(edits))}
	result.Diff, result.Truncated = diff(c.Path, content, edits, args.MaxDiff)
	if !args.DryRun {
		changed, err := applied(content, edits, args.MaxSize)
		if err != nil {
			return nil, err
		}
		c.data, c.NoCreate, c.Version = []byte(changed), true, version(&was)
		if _, err := c.write(); err != nil {
			return nil, err
		}
	}
	return c.result(&result)
}

// text reads the whole of a text file.
func (c *call) text(most int64) (content string, st unix.Stat_t, err error) {
	fd, st, err := openRegular(c.Path, false)
	if err != nil {
		return "", st, err
	}
	defer unix.Close(fd)
	data, err := io.ReadAll(io.LimitReader(file(fd), most+1))
	switch {
	case err != nil:
		return "", st, err
	case int64(len(data)) > most:
		return "", st, &problem{unix.EFBIG, fmt.Sprintf("has more than %d bytes", most)}
	case bytes.IndexByte(data, 0) >= 0:
		return "", st, &problem{unix.EINVAL, "is binary: it holds a NUL byte"}
	}
	return string(data), st, nil
}

// edits are the replacements, which are as many as was asked for.
func (c *call) edits(content string, a *filesapi.ReplaceArgs) ([]edit, error) {
	edits, err := c.occurrences(content, a)
	if err != nil {
		return nil, err
	}
	want := 1
	switch {
	case a.Expected > 0:
		want = a.Expected
	case a.All && len(edits) > 0:
		want = len(edits)
	}
	switch {
	case len(edits) == want:
		return edits, nil
	case len(edits) == 0:
		return nil, &problem{unix.EINVAL, "find does not occur in the file" + nearest(content, a)}
	}
	lines := make([]string, 0, shownLines)
	line, at := 1, 0
	for i, e := range edits {
		if i == shownLines {
			lines = append(lines, "...")
			break
		}
		line += strings.Count(content[at:e.start], "\n")
		at = e.start
		lines = append(lines, fmt.Sprint(line))
	}
	how := "give more of the text around it, or set all"
	if a.Expected > 0 {
		how = "look at them, and set expected to what is right"
	}
	return nil, &problem{unix.EINVAL, fmt.Sprintf("find occurs %d times and not %d, in lines %s: %s", len(edits), want,
		strings.Join(lines, ", "), how)}
}

func (c *call) occurrences(content string, a *filesapi.ReplaceArgs) ([]edit, error) {
	if a.Regex {
		return c.matches(content, a)
	}
	find, replace := a.Find, a.Replace
	if !strings.Contains(content, find) && strings.Contains(content, "\r\n") && !strings.Contains(find, "\r") {
		find, replace = crlf(find), crlf(replace) // the file's line ends, which a model does not see
	}
	var edits []edit
	for at := 0; ; {
		i := strings.Index(content[at:], find)
		if i < 0 {
			return edits, nil
		}
		if err := c.mayGoOn(len(edits)); err != nil {
			return nil, err
		}
		edits = append(edits, edit{at + i, at + i + len(find), replace})
		at += i + len(find)
	}
}

func crlf(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

func (c *call) mayGoOn(found int) error {
	if found == maxReplacements {
		return &problem{unix.EFBIG, fmt.Sprintf("find occurs more than %d times", maxReplacements)}
	}
	if c.ctx.Err() != nil {
		return unix.ECANCELED
	}
	return nil
}

func (c *call) matches(content string, a *filesapi.ReplaceArgs) ([]edit, error) {
	re, err := regexp.Compile(a.Find)
	if err != nil {
		return nil, &problem{unix.EINVAL, err.Error()}
	}
	var edits []edit
	size := int64(0)
	for _, m := range re.FindAllStringSubmatchIndex(content, maxReplacements+1) {
		if err := c.mayGoOn(len(edits)); err != nil {
			return nil, err
		}
		text := string(re.ExpandString(nil, a.Replace, content, m))
		if size += int64(len(text)); size > a.MaxSize {
			return nil, tooLarge(a.MaxSize)
		}
		edits = append(edits, edit{m[0], m[1], text})
	}
	return edits, nil
}

func tooLarge(most int64) error {
	return &problem{unix.EFBIG, fmt.Sprintf("would have more than %d bytes", most)}
}

// nearest tells of the line that is most like what was not found.
func nearest(content string, a *filesapi.ReplaceArgs) string {
	want := strings.TrimSpace(a.Find)
	if first, _, more := strings.Cut(want, "\n"); more {
		want = strings.TrimSpace(first)
	}
	if a.Regex || want == "" {
		return ""
	}
	pairs := map[[2]byte]bool{}
	for i := range len(want) - 1 {
		pairs[[2]byte{want[i], want[i+1]}] = true
	}
	best, at, text, line := 0, 0, "", 0
	for l := range strings.Lines(content) {
		line++
		trimmed := strings.TrimSpace(l)
		if len(trimmed) > 4*len(want)+80 {
			trimmed = trimmed[:4*len(want)+80]
		}
		seen := map[[2]byte]bool{}
		if strings.Contains(trimmed, want) {
			best, at, text = 2*len(pairs)+1, line, l
			break
		}
		for i := range len(trimmed) - 1 {
			if p := [2]byte{trimmed[i], trimmed[i+1]}; pairs[p] {
				seen[p] = true
			}
		}
		if len(seen) > best {
			best, at, text = len(seen), line, l
		}
	}
	if 2*best < len(pairs) || at == 0 {
		return ""
	}
	text = strings.TrimRight(text, "\r\n")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	what := "the most similar line"
	if best > len(pairs) {
		what = "spaces or other lines differ: its first line"
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return fmt.Sprintf("; %s is %d: %q", what, at, text)
}
