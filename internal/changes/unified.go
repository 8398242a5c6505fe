package changes

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
)

// maxDiffed is the largest file that is shown line by line, in bytes.
const maxDiffed = 1 << 20

// Unified writes changes as git does, so that git apply takes them; of files that are no text, or are too
// long, it says that they differ. It stops with ErrLong when more than limit bytes would be written.
func Unified(w io.Writer, upper, lower *os.File, found []Change, context, limit int) error {
	u := &unified{w: w, left: limit, upper: int(upper.Fd()), lower: int(lower.Fd()), context: context}
	for i := range found {
		if err := u.change(&found[i]); err != nil {
			return err
		}
	}
	return nil
}

// ErrLong is a diff that is longer than it may be.
var ErrLong = fmt.Errorf("the diff is longer")

type unified struct {
	w            io.Writer
	left         int
	upper, lower int
	context      int
	prefix       string // of the names that are shown
}

func (u *unified) print(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if u.left -= len(text); u.left < 0 {
		return ErrLong
	}
	_, err := io.WriteString(u.w, text)
	return err
}

func (u *unified) change(c *Change) error {
	if c.Type == "d" { // git knows files only
		if c.Kind != Deleted {
			return nil
		}
		return u.folder(c.Path)
	}
	from := c.Path
	if c.From != "" {
		from = c.From
	}
	a, b := quoted(path.Join("a", u.prefix, from)), quoted(path.Join("b", u.prefix, c.Path))
	if err := u.print("diff --git %s %s\n", a, b); err != nil {
		return err
	}
	var head string
	switch c.Kind {
	case Added:
		head, a = "new file mode "+gitMode(c)+"\n", "/dev/null"
	case Deleted:
		was := *c
		if st, err := stat(u.lower, c.Path); err == nil {
			was.Mode = permissions(st)
		}
		head, b = "deleted file mode "+gitMode(&was)+"\n", "/dev/null"
	case Renamed:
		head = u.modes(c, c.From) + fmt.Sprintf("similarity index 100%%\nrename from %s\nrename to %s\n",
			quoted(c.From), quoted(c.Path))
	case Modified:
		head = u.modes(c, c.Path)
	}
	if err := u.print("%s", head); err != nil || c.Kind == Renamed {
		return err
	}
	old, new, ok := u.texts(c)
	switch {
	case !ok:
		return u.print("Binary files %s and %s differ\n", a, b)
	case old == new:
		return nil
	}
	edits := udiff.Lines(old, new)
	text, err := udiff.ToUnified(a, b, old, edits, u.context)
	if err != nil {
		return err
	}
	return u.print("%s", text)
}

// folder writes that every file of a folder is deleted.
func (u *unified) folder(dir string) error {
	names, err := list(u.lower, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		st, err := stat(u.lower, p)
		if err != nil {
			return err
		}
		if err := u.change(&Change{Path: p, Kind: Deleted, Type: letter(st), Size: int64(st.Size)}); err != nil {
			return err
		}
	}
	return nil
}

// texts are the old and the new content; ok is false where one is no text.
func (u *unified) texts(c *Change) (old, new string, ok bool) {
	read := func(dir int, p string) (string, bool) {
		if c.Type == "l" {
			target, err := readlink(dir, p)
			return target, err == nil
		}
		f, err := Open(dir, p)
		if err != nil {
			return "", false
		}
		defer f.Close()
		return readText(f)
	}
	ok = true
	if c.Kind != Added {
		old, ok = read(u.lower, c.Path)
	}
	if ok && c.Kind != Deleted {
		new, ok = read(u.upper, c.Path)
	}
	return old, new, ok && strings.Contains("-l", c.Type)
}

// readText reads a file that can be shown line by line.
func readText(f *os.File) (string, bool) {
	text, err := io.ReadAll(io.LimitReader(f, maxDiffed+1))
	if err != nil || len(text) > maxDiffed || bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return "", false
	}
	return string(text), true
}

// gitMode is what git calls a file's mode: of the bits it knows whether it can be run.
func gitMode(c *Change) string {
	if c.Type == "l" {
		return "120000"
	}
	if m, err := strconv.ParseUint(c.Mode, 8, 32); err == nil && m&0o100 != 0 {
		return "100755"
	}
	return "100644"
}

// modes are the lines about a mode that is another one than that of a name in the folder.
func (u *unified) modes(c *Change, name string) string {
	st, err := stat(u.lower, name)
	if err != nil || c.Mode == "" {
		return ""
	}
	was := gitMode(&Change{Type: letter(st), Mode: permissions(st)})
	if was == gitMode(c) {
		return ""
	}
	return "old mode " + was + "\nnew mode " + gitMode(c) + "\n"
}

// quoted is a name as git writes it where it has something odd.
func quoted(p string) string {
	if strings.IndexFunc(p, func(r rune) bool {
		return r < ' ' || r == '"' || r == '\\' || r == 0x7f ||
			r == utf8.RuneError
	}) < 0 {
		return p
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(p) {
		switch c := p[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}
